#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/benchmarks/needle_text.h"
#include "eval/benchmarks/ruler_generator.h"
#include "eval/task_table.h"
#include "eval/texts.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kDepths = 40;  // needles of an essay go to 40 depths from 0 to 100 %

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class NiahGenerator : public RulerGenerator {
 public:
  NiahGenerator(const RulerTask& task, const RulerWords& words, std::int32_t length)
      : task_(task), words_(words), length_(length) {}

  std::size_t smallest() const override { return task_.haystack == "essay" ? 1 : task_.n_keys * task_.n_values; }
  std::size_t step() const override {
    if (task_.haystack == "essay") return 500;
    return length_ < kShortRulerLength ? 5 : 25;
  }

  RulerPrompt make(std::size_t n, std::size_t, Random& random) const override {
    std::vector<std::string> keys;
    std::vector<std::vector<std::string>> values;
    std::vector<std::string> needles;
    while (keys.size() < task_.n_keys) {
      const std::string key = drawn(task_.key, random);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      keys.push_back(key);
      values.emplace_back();
      for (std::size_t i = 0; i < task_.n_values; ++i) {
        values.back().push_back(drawn(task_.value, random));
        needles.push_back(needle(key, values.back().back()));
      }
    }
    random.shuffle(needles);

    RulerPrompt prompt;
    std::vector<std::string> queries;
    for (const std::size_t i : random.distinct(task_.n_queries, task_.n_keys)) {
      queries.push_back(keys[i]);
      prompt.outputs.insert(prompt.outputs.end(), values[i].begin(), values[i].end());
    }
    std::string query = queries.back();
    if (queries.size() > 1) {
      queries.pop_back();
      query = joined(queries, ", ") + ", and " + query;
    }
    const bool one = task_.n_queries * task_.n_values == 1;
    std::string type(task_.value);
    if (one) type.pop_back();
    const Fields fields = {{"type_needle_v", type}, {"query", query}, {"context", haystack(n, needles, random)}};
    const auto filled = [&](const char* part) {
      std::string text = row_text(ruler_row("niah"), part);
      if (one) text = replaced(replaced(replaced(text, "Some", "A"), "are all", "is"), "are", "is");
      return fill(text, fields);
    };
    prompt.context = filled("context");
    prompt.question = filled("question");
    prompt.prefix = filled("prefix");
    return prompt;
  }

 private:
  std::string drawn(std::string_view type, Random& random) const {
    if (type == "uuids") return random.uuid();
    if (type == "numbers") return std::to_string(1000000 + random.below(9000000));
    return random.one_of(words_.adjectives) + "-" + random.one_of(words_.nouns);
  }

  std::string needle(const std::string& key, const std::string& value) const {
    return "One of the special magic " + std::string(task_.value) + " for " + key + " is: " + value + ".";
  }

  std::string haystack(std::size_t n, const std::vector<std::string>& needles, Random& random) const {
    if (task_.haystack == "essay") return essay(n, needles, random);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < n; ++i) {
      lines.push_back(task_.haystack == "noise" ? std::string(kNoise)
                                                : needle(drawn(task_.key, random), drawn(task_.value, random)));
    }
    std::vector<std::size_t> positions = random.distinct(needles.size(), n);
    std::sort(positions.rbegin(), positions.rend());  // from the end, so that earlier positions stay
    for (std::size_t i = 0; i < needles.size(); ++i) {
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(positions[i]), needles[i]);
    }
    return joined(lines, "\n");
  }

  std::string essay(std::size_t n, const std::vector<std::string>& needles, Random& random) const {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += (i == 0 ? "" : " ") + words_.essay[i % words_.essay.size()];
    const std::vector<std::string> sentences = sentences_of(text);
    std::vector<std::size_t> depths = random.distinct(needles.size(), kDepths);
    std::sort(depths.begin(), depths.end());
    std::vector<std::string> parts;
    std::size_t from = 0;
    for (std::size_t i = 0; i < needles.size(); ++i) {
      const double depth = std::nearbyint(100.0 * static_cast<double>(depths[i]) / (kDepths - 1));
      const std::size_t to = depth_index(sentences.size(), depth);
      parts.insert(parts.end(), sentences.begin() + static_cast<std::ptrdiff_t>(from),
                   sentences.begin() + static_cast<std::ptrdiff_t>(to));
      parts.push_back(needles[i]);
      from = to;
    }
    parts.insert(parts.end(), sentences.begin() + static_cast<std::ptrdiff_t>(from), sentences.end());
    return joined(parts, " ");
  }

  const RulerTask& task_;
  const RulerWords& words_;
  std::int32_t length_;
};

}  // namespace

RulerGeneratorPtr make_niah_generator(const RulerTask& task, const RulerWords& words, std::int32_t length) {
  return std::make_unique<NiahGenerator>(task, words, length);
}

}  // namespace winnow::eval
