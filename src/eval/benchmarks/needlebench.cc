#include <algorithm>
#include <nlohmann/json.hpp>

#include "eval/benchmarks/all.h"
#include "eval/benchmarks/needle_text.h"
#include "eval/benchmarks/needlebench_data.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr double kStep = 10;  // percent of the length from one fact of a chain to the next

std::vector<double> official_needlebench_depths() {
  std::vector<double> depths;
  for (int depth = 0; depth <= 100; depth += 10) depths.push_back(depth);
  return depths;
}

// The texts hidden in one context, and the question about them.
struct Hidden {
  std::vector<std::string> texts, references;
  std::vector<double> depths;  // depth of each text, percent; beyond 100: at the end
  Fields fields;
};

Hidden hidden_of(const nlohmann::json& row, const NeedleData& data, const std::vector<double>& depths,
                 std::size_t index, Random& random) {
  const std::string language = row.at("language");
  const std::string kind = row.at("kind");
  Hidden hidden;
  if (kind == "reasoning") {
    const Chain chain = draw_chain(data, language, row.at("facts"), random);
    hidden.texts = chain.facts;
    for (std::size_t i = 0; i < chain.facts.size(); ++i) {
      hidden.depths.push_back(depths[index] + kStep * static_cast<double>(i));
    }
    hidden.references = {chain.names.front()};
    const Fields last = {{"last_person", chain.names.back()}};
    hidden.fields = last;
    hidden.fields["retrieval_question"] = fill(row_text(row, "asked"), last);
    return hidden;
  }
  hidden.depths = kind == "multi" ? depths : std::vector<double>{depths[index]};
  std::sort(hidden.depths.begin(), hidden.depths.end());  // texts are hidden from front to back
  const std::vector<Needle> needles = draw_needles(data, language, hidden.depths.size(), random);
  for (const Needle& needle : needles) {
    hidden.texts.push_back(needle.text);
    hidden.references.push_back(needle.keyword);
  }
  hidden.fields["retrieval_question"] = kind == "multi" ? joined_questions(needles, row) : needles[0].question;
  return hidden;
}

std::string with_hidden(const TokenText& text, std::size_t begin, std::size_t n_context, const Hidden& hidden) {
  std::string context;
  std::size_t from = 0;
  for (std::size_t i = 0; i < hidden.texts.size(); ++i) {
    const std::size_t to = std::max(from, depth_index(n_context, std::min(hidden.depths[i], 100.0)));
    context += text.text(begin + from, begin + to) + "\n" + hidden.texts[i] + "\n";
    from = to;
  }
  return context + text.text(begin + from, begin + n_context);
}

class NeedleBench : public Benchmark {
 public:
  std::string_view name() const override { return "needlebench"; }
  std::string_view summary() const override {
    return "one needle, several, and chains of facts, in English and Chinese";
  }
  std::vector<std::string> tasks() const override { return task_names(name()); }
  std::vector<std::string_view> inputs() const override { return {"data", "lengths", "depths", "haystack"}; }

  // Makes samples of the selected tasks. If none is named, these are the tasks in English, the language of the text
  // that ships, whose context is running text.
  std::vector<Sample> samples(const SampleOptions& options) const override {
    const std::vector<std::string> selected = selected_tasks(options, tasks(), name());
    const NeedleData data = read_needle_data(options);
    std::vector<Sample> samples;
    std::string text;
    for (const nlohmann::json& row : task_table(name())) {
      const bool is_default = row.at("language") == "English" && row.at("kind") != "atc";
      if (std::find(selected.begin(), selected.end(), row.at("task")) == selected.end()) continue;
      if (options.tasks.empty() && !is_default) continue;
      if (row.at("kind") == "atc") {
        add_chains(row, data, options, samples);
      } else {
        if (text.empty()) text = joined_books(options);
        add_contexts(row, data, TokenText(options, text), options, samples);
      }
    }
    return samples;
  }

 private:
  static void add_contexts(const nlohmann::json& row, const NeedleData& data, const TokenText& text,
                           const SampleOptions& options, std::vector<Sample>& samples) {
    const std::vector<double> depths = depths_of(options, official_needlebench_depths());
    const bool has_depth = row.at("kind") != "multi";
    const std::size_t n_samples = options.limit > 0 ? static_cast<std::size_t>(options.limit) : depths.size();
    for (const std::int32_t length : lengths_of(options, {2000})) {
      const std::vector<std::size_t> cells = spread(std::min(n_samples, depths.size()), depths.size());
      for (std::size_t i = 0; i < n_samples; ++i) {
        const std::string key = row_text(row, "task") + "/" + std::to_string(length) + "/" + std::to_string(i);
        Random random(options.seed, "needlebench/" + key);
        const std::size_t cell = cells[i % cells.size()];
        const Hidden hidden = hidden_of(row, data, depths, cell, random);
        std::size_t n_hidden = 0;
        for (const std::string& needle : hidden.texts) n_hidden += TokenText(options, "\n" + needle + "\n").size();
        const std::size_t n_context = context_tokens(row, length, n_hidden, text.size());
        const std::size_t begin = random.below(text.size() - n_context + 1);
        Fields fields = hidden.fields;
        fields["context"] = with_hidden(text, begin, n_context, hidden);
        Sample sample = sample_of_row(row, fields);
        sample.id = std::to_string(length) + "-" + std::to_string(i);
        sample.turns[0].references = hidden.references;
        sample.coordinates["length"] = length;
        if (has_depth) sample.coordinates["depth"] = depths[cell];
        samples.push_back(std::move(sample));
      }
    }
  }

  static std::size_t context_tokens(const nlohmann::json& row, std::int32_t length, std::size_t n_hidden,
                                    std::size_t n_text) {
    const std::size_t n_other = row.at("buffer").get<std::size_t>() + n_hidden;
    const auto n_total = static_cast<std::size_t>(length);
    if (n_total <= n_other) {
      throw Error(ErrorCode::kInvalidArgument,
                  row_text(row, "task") + " needs a length of more than " + std::to_string(n_other) + " tokens");
    }
    if (n_total - n_other > n_text) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the text has only " + std::to_string(n_text) + " tokens: name a longer one with --haystack");
    }
    return n_total - n_other;
  }

  // Adds samples of the Ancestral Trace Challenge, whose context is the facts alone. Lengths are numbers of facts here.
  static void add_chains(const nlohmann::json& row, const NeedleData& data, const SampleOptions& options,
                         std::vector<Sample>& samples) {
    const std::string question = row_text(row, "task");
    for (const std::int32_t n_facts : lengths_of(options, {2, 4, 8, 16})) {
      for (int i = 0; i < (options.limit > 0 ? options.limit : 10); ++i) {
        const std::string key = question + "/" + std::to_string(n_facts) + "/" + std::to_string(i);
        Random random(options.seed, "needlebench/" + key);
        const Chain chain = draw_chain(data, row.at("language"), static_cast<std::size_t>(n_facts), random);
        std::string story;
        for (const std::string& fact : chain.facts) story += fact;
        const bool down = question.starts_with("atc_descendant");
        const std::string generations = std::to_string(chain.generations);
        Sample sample = sample_of_row(row, {{"shuffled_story", story},
                                            {"last_person", chain.names.back()},
                                            {"person", down ? chain.names.front() : chain.names.back()},
                                            {"person_a", chain.names.front()},
                                            {"person_b", chain.names.back()},
                                            {"n", generations}});
        sample.id = std::to_string(n_facts) + "-" + std::to_string(i);
        sample.coordinates["facts"] = n_facts;
        const bool distance = question.starts_with("atc_distance");
        sample.turns[0].references = {distance ? generations : down ? chain.names.back() : chain.names.front()};
        samples.push_back(std::move(sample));
      }
    }
  }
};

}  // namespace

const Benchmark& needlebench() {
  static const NeedleBench benchmark;
  return benchmark;
}

}  // namespace winnow::eval
