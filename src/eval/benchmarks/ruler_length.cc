#include <algorithm>
#include <nlohmann/json.hpp>

#include "eval/benchmarks/ruler_generator.h"
#include "eval/task_table.h"
#include "eval/texts.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr int kDefaultSamples = 20;  // samples of a task and length; RULER has 500

bool fits(const RulerPrompt& prompt, const SampleOptions& options, std::int32_t length, int max_new) {
  return count_tokens(options, prompt.context + prompt.question + prompt.prefix) + max_new + options.reserved_tokens <=
         length;
}

std::string sample_name(std::string_view task, std::int32_t length, std::size_t index) {
  return "ruler/" + std::string(task) + "/" + std::to_string(length) + "/" + std::to_string(index);
}

}  // namespace

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += between;
    text += parts[i];
  }
  return text;
}

const nlohmann::json& ruler_row(std::string_view form) {
  for (const nlohmann::json& row : task_table("ruler")) {
    if (row.at("task") == form) return row;
  }
  throw Error(ErrorCode::kInternal, "RULER has no form '" + std::string(form) + "'");
}

std::size_t largest_fitting(const RulerGenerator& generator, const SampleOptions& options, std::int32_t length,
                            int max_new, std::string_view name) {
  const auto good = [&](std::size_t n) {
    Random random(options.seed, sample_name(name, length, 0));
    return fits(generator.make(n, 0, random), options, length, max_new);
  };
  std::size_t low = generator.smallest();
  if (!good(low)) return 0;
  std::size_t high = low;
  while (low == high && low < generator.largest()) {
    high = std::min(2 * high + 8, generator.largest());
    if (good(high)) low = high;
  }
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<Sample> generate_ruler(const RulerTask& task, const RulerGenerator& generator, const SampleOptions& options,
                                   std::int32_t length) {
  const nlohmann::json& row = ruler_row(task.form);
  const int max_new = row.at("max_new");
  const auto too_short = [&] {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(task.name) + " does not fit " + std::to_string(length) + " tokens: give a greater length");
  };
  const std::size_t largest = largest_fitting(generator, options, length, max_new, task.name);
  if (largest == 0) too_short();
  if (largest == generator.largest() && !generator.too_few().empty()) {
    throw Error(ErrorCode::kInvalidArgument, generator.too_few());
  }
  std::vector<Sample> samples;
  const auto n_samples = static_cast<std::size_t>(options.limit > 0 ? options.limit : kDefaultSamples);
  for (std::size_t index = 0; index < n_samples; ++index) {
    RulerPrompt prompt;
    for (std::size_t n = largest;;) {
      Random random(options.seed, sample_name(task.name, length, index));
      prompt = generator.make(n, index, random);
      if (fits(prompt, options, length, max_new)) break;
      const std::size_t spare = n - generator.smallest();
      if (spare == 0) too_short();
      // The official step may be most of a short prompt, so near the smallest size half of what is left goes.
      n -= spare >= generator.step() ? generator.step() : (spare + 1) / 2;
    }
    Sample sample = sample_of_row(row, {});
    sample.task = task.name;
    sample.id = std::to_string(length) + "-" + std::to_string(index);
    sample.context = std::move(prompt.context);
    sample.turns[0].question = std::move(prompt.question);
    sample.turns[0].answer_prefix = std::move(prompt.prefix);
    sample.turns[0].references = std::move(prompt.outputs);
    sample.prefix_behind_header = true;
    sample.coordinates["length"] = length;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace winnow::eval
