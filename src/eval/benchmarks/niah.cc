#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/benchmarks/all.h"
#include "eval/benchmarks/needle_text.h"
#include "eval/random.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kBuffer = 200;  // tokens reserved for the prompt around the context

std::vector<double> official_niah_depths() {
  std::vector<double> depths;
  for (int i = 0; i < 10; ++i) depths.push_back(std::nearbyint(100.0 * i / 9));
  return depths;
}

// Returns the context with the needle in it.
std::string with_needle(const TokenText& text, std::size_t begin, std::size_t n_context, const std::string& needle,
                        double depth) {
  std::size_t at = n_context;
  if (depth < 100) {
    at = depth_index(n_context, depth);
    while (at > 0 && text[begin + at - 1] != ".") --at;
  }
  return text.text(begin, begin + at) + needle + text.text(begin + at, begin + n_context);
}

class Niah : public Benchmark {
 public:
  std::string_view name() const override { return "niah"; }
  std::string_view summary() const override { return "a sentence hidden in a book, by length and depth"; }
  std::vector<std::string> tasks() const override { return {"niah"}; }
  std::vector<std::string_view> inputs() const override { return {"lengths", "depths", "haystack"}; }

  // Makes one sample for each depth. If more are asked for, the rest hide the needle in other passages of the text.
  std::vector<Sample> samples(const SampleOptions& options) const override {
    selected_tasks(options, tasks(), name());
    const nlohmann::json& row = task_table(name()).at(0);
    const std::vector<double> depths = depths_of(options, official_niah_depths());
    const std::vector<std::int32_t> lengths = lengths_of(options, {1000, 2000});
    const std::string needle = row_text(row, "needle");
    const auto n_needle = static_cast<std::size_t>(TokenText(options, needle).size());
    const auto n_samples = static_cast<std::size_t>(options.limit);
    const std::size_t n_rounds = n_samples == 0 ? 1 : (n_samples + depths.size() - 1) / depths.size();
    const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
    // A single round begins with the book, as in the papers.
    const TokenText text(options, joined_books(options), n_rounds == 1 ? longest : 0);

    std::vector<Sample> samples;
    for (const std::int32_t length : lengths) {
      const auto n_total = static_cast<std::size_t>(length);
      if (n_total <= kBuffer + n_needle) {
        throw Error(ErrorCode::kInvalidArgument, "a length of " + std::to_string(length) +
                                                     " tokens is too short for niah: give more than " +
                                                     std::to_string(kBuffer + n_needle));
      }
      const std::size_t n_context = n_total - kBuffer - n_needle;
      if (text.size() < n_context) {
        throw Error(ErrorCode::kInvalidArgument,
                    "the text has only " + std::to_string(text.size()) + " tokens: name a longer one with --haystack");
      }
      std::size_t left = n_samples == 0 ? depths.size() : n_samples;
      for (std::size_t round = 0; round < n_rounds; ++round) {
        Random random(options.seed, "niah/" + std::to_string(length) + "/" + std::to_string(round));
        const std::size_t begin =
            round == 0 ? 0 : text.word_from(random.below(text.size() - n_context + 1)) % (text.size() - n_context + 1);
        for (const std::size_t index : spread(std::min(left, depths.size()), depths.size())) {
          Sample sample = sample_of_row(row, {{"context", with_needle(text, begin, n_context, needle, depths[index])},
                                              {"question", row_text(row, "asked")}});
          sample.id = std::to_string(length) + "-" + std::to_string(round) + "-" + std::to_string(index);
          sample.coordinates = {{"length", length}, {"depth", depths[index]}};
          sample.turns[0].references = {needle};
          samples.push_back(std::move(sample));
          --left;
        }
      }
    }
    return samples;
  }
};

}  // namespace

const Benchmark& niah() {
  static const Niah benchmark;
  return benchmark;
}

}  // namespace winnow::eval
