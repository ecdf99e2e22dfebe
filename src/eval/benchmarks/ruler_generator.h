// Generators of RULER's prompts, true to the letter of its templates; see docs/benchmarks.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"
#include "eval/sample.h"

namespace winnow::eval {

struct RulerPrompt {
  std::string context, question, prefix;
  std::vector<std::string> outputs;
};

// A generator of the prompts of one task and length. Their size n counts lines, words or documents.
class RulerGenerator {
 public:
  virtual ~RulerGenerator() = default;
  virtual RulerPrompt make(std::size_t n, std::size_t index, Random& random) const = 0;
  virtual std::size_t smallest() const { return 1; }
  virtual std::size_t largest() const { return std::numeric_limits<std::size_t>::max() / 4; }
  virtual std::size_t step() const = 0;               // most by which n falls when a sample is too long
  virtual std::string too_few() const { return {}; }  // error message if even `largest` fits; empty: no error
};

// A task of RULER, with the parameters of its generator. The table is in ruler.cc.
struct RulerTask {
  std::string_view name;
  std::string_view form;  // a row of tasks.json: "niah", "vt", "cwe", "fwe", "qa"
  std::string_view haystack = {}, key = {}, value = {};
  std::size_t n_keys = 1, n_values = 1, n_queries = 1;
};

using RulerGeneratorPtr = std::unique_ptr<const RulerGenerator>;

// The words in the prompts besides the templates. Owned by the caller; must outlive the generators.
struct RulerWords {
  std::vector<std::string> adjectives, nouns, verbs;
  std::vector<std::string> essay;  // the haystack's words
};
RulerWords read_ruler_words(const SampleOptions& options);

RulerGeneratorPtr make_niah_generator(const RulerTask& task, const RulerWords& words, std::int32_t length);
RulerGeneratorPtr make_vt_generator(const SampleOptions& options, std::int32_t length);
RulerGeneratorPtr make_cwe_generator(const RulerWords& words, std::int32_t length);
RulerGeneratorPtr make_fwe_generator(std::int32_t length, std::int32_t reserved);
// Returns the file of questions and documents of qa_1 or qa_2 in a folder; an empty path if there is none.
std::filesystem::path find_qa_source(const std::string& folder, std::string_view task);
// Throws Error(kBadFile) for a file that is not of the task's data set.
RulerGeneratorPtr make_qa_generator(const std::filesystem::path& source, std::string_view task);

// Returns the largest size, at most `largest`, with which a prompt fits `length` tokens with its answer and the chat
// template; 0 if not even the smallest fits.
std::size_t largest_fitting(const RulerGenerator& generator, const SampleOptions& options, std::int32_t length,
                            int max_new, std::string_view name);
std::vector<Sample> generate_ruler(const RulerTask& task, const RulerGenerator& generator, const SampleOptions& options,
                                   std::int32_t length);

const nlohmann::json& ruler_row(std::string_view form);

// Tokens; for shorter lengths, sizes fall by smaller steps and common words repeat less.
inline constexpr std::int32_t kShortRulerLength = 4096;
// A line of noise.
inline constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

std::string joined(const std::vector<std::string>& parts, std::string_view between);

}  // namespace winnow::eval
