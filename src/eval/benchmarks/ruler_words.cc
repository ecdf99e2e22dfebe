// RULER's tasks on single words: variable tracking, common words, frequent words.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "eval/benchmarks/ruler_generator.h"
#include "eval/python_str.h"
#include "eval/sample_files.h"
#include "eval/shipped.h"
#include "eval/task_table.h"
#include "eval/texts.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kVariables = 5;           // one chain of four hops
constexpr std::int32_t kVtExampleLength = 500;  // tokens
constexpr std::size_t kCommon = 10;
constexpr std::size_t kCweExampleWords = 40;

RulerPrompt filled_row(const char* form, const Fields& fields) {
  const nlohmann::json& row = ruler_row(form);
  return {fill(row_text(row, "context"), fields),
          fill(row_text(row, "question"), fields),
          fill(row_text(row, "prefix"), fields),
          {}};
}

// A generator of a chain of assignments among n lines of noise; the names have n_letters letters.
class ChainGenerator : public RulerGenerator {
 public:
  ChainGenerator(std::size_t n_letters, std::int32_t length) : n_letters_(n_letters), length_(length) {}

  std::size_t smallest() const override { return kVariables; }
  std::size_t step() const override { return length_ < kShortRulerLength ? 5 : 10; }

  RulerPrompt make(std::size_t n, std::size_t, Random& random) const override {
    std::vector<std::string> names;
    while (names.size() < kVariables) {
      const std::string name = random.letters(n_letters_, 'A');
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    const std::string value = std::to_string(10000 + random.below(89999));
    std::vector<std::string> lines(n, std::string(kNoise));
    std::vector<std::size_t> positions = random.distinct(kVariables, n);
    std::sort(positions.begin(), positions.end());
    for (std::size_t i = 0; i < kVariables; ++i) {
      const std::string line =
          i == 0 ? "VAR " + names[0] + " = " + value : "VAR " + names[i] + " = VAR " + names[i - 1] + " ";
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(positions[i] + i), line);
    }
    const std::string context = encode(replace_all(decode(joined(lines, "\n")), U". \n", U".\n"));
    RulerPrompt prompt =
        filled_row("vt", {{"context", context}, {"query", value}, {"num_v", std::to_string(kVariables)}});
    prompt.outputs = names;
    return prompt;
  }

 private:
  std::size_t n_letters_;
  std::int32_t length_;
};

// Returns the size of vt's worked example, which has a length of its own. The chat template is around the whole prompt,
// not around the example, so it takes nothing of that length.
std::size_t vt_example_size(const RulerGenerator& example, SampleOptions options) {
  options.reserved_tokens = 0;
  const std::size_t n = largest_fitting(example, options, kVtExampleLength, ruler_row("vt").at("max_new"), "vt");
  if (n > 0) return n;
  throw Error(ErrorCode::kInvalidArgument, "this model's tokenizer takes more than " +
                                               std::to_string(kVtExampleLength) +
                                               " tokens for vt's worked example: name other tasks with --tasks");
}

// A generator of chains with a worked example in front.
class VtGenerator : public RulerGenerator {
 public:
  VtGenerator(const SampleOptions& options, std::int32_t length)
      : chain_(5, length), example_(3, kVtExampleLength), n_example_(vt_example_size(example_, options)) {}

  std::size_t smallest() const override { return chain_.smallest(); }
  std::size_t step() const override { return chain_.step(); }

  RulerPrompt make(std::size_t n, std::size_t index, Random& random) const override {
    const RulerPrompt example = example_.make(n_example_, index, random);
    RulerPrompt prompt = chain_.make(n, index, random);
    prompt.context = example.context + example.question + example.prefix + " " + joined(example.outputs, " ") + "\n\n" +
                     prompt.context;
    return prompt;
  }

 private:
  ChainGenerator chain_, example_;
  std::size_t n_example_;
};

class CweGenerator : public RulerGenerator {
 public:
  CweGenerator(const RulerWords& words, std::int32_t length) : length_(length) {
    std::set<std::string> seen;
    for (const auto* list : {&words.nouns, &words.adjectives, &words.verbs}) {
      for (const std::string& word : *list) {
        if (seen.insert(word).second) words_.push_back(word);
      }
    }
  }

  std::size_t smallest() const override { return kCommon + 1; }
  std::size_t largest() const override { return words_.size(); }
  std::size_t step() const override { return 10; }
  std::string too_few() const override {
    return "cwe of " + std::to_string(length_) + " tokens needs more than the " + std::to_string(words_.size()) +
           " words of the lists: name RULER's own word lists with --words, or a shorter length";
  }

  RulerPrompt make(std::size_t n, std::size_t, Random& random) const override {
    const bool is_short = length_ < kShortRulerLength;
    const RulerPrompt example =
        list(is_short ? kCweExampleWords / 2 : kCweExampleWords, is_short ? 3 : 10, is_short ? 1 : 3, random);
    RulerPrompt prompt = list(n, is_short ? 6 : 30, is_short ? 1 : 3, random);
    prompt.context =
        example.context + example.question + example.prefix + " " + numbered(example.outputs) + "\n" + prompt.context;
    return prompt;
  }

 private:
  static std::string numbered(const std::vector<std::string>& words) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
      text += (i == 0 ? "" : " ") + std::to_string(i + 1) + ". " + words[i];
    return text;
  }

  RulerPrompt list(std::size_t n, std::size_t n_often, std::size_t n_seldom, Random& random) const {
    std::vector<std::string> drawn, repeated;
    for (const std::size_t i : random.distinct(n, words_.size())) drawn.push_back(words_[i]);
    for (std::size_t i = 0; i < n; ++i) repeated.insert(repeated.end(), i < kCommon ? n_often : n_seldom, drawn[i]);
    random.shuffle(repeated);
    RulerPrompt prompt = filled_row("cwe", {{"context", numbered(repeated)}});
    prompt.outputs.assign(drawn.begin(), drawn.begin() + kCommon);
    return prompt;
  }

  std::int32_t length_;
  std::vector<std::string> words_;
};

// A generator of coded words whose frequencies fall with the square of their rank (a zeta distribution).
class FweGenerator : public RulerGenerator {
 public:
  FweGenerator(std::int32_t length, std::int32_t reserved)
      : n_tokens_(static_cast<std::size_t>(
            std::max(length - reserved - ruler_row("fwe").at("max_new").get<std::int32_t>(), 1))) {}

  // n counts the steps by which the number of words grows.
  std::size_t smallest() const override { return 1; }
  std::size_t step() const override { return 1; }

  RulerPrompt make(std::size_t n, std::size_t, Random& random) const override {
    std::set<std::string> distinct;
    while (distinct.size() < std::max<std::size_t>(n_tokens_ / 50, 4)) distinct.insert(random.letters(6, 'a'));
    std::vector<std::string> vocabulary(distinct.begin(), distinct.end());
    random.shuffle(vocabulary);
    vocabulary[0] = "...";
    const std::size_t n_words = n_tokens_ / 6 + (n - 1) * std::max<std::size_t>(n_tokens_ / 32, 1);
    constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
    std::vector<std::string> words;
    for (std::size_t k = 1; k <= vocabulary.size(); ++k) {
      const double share = std::pow(static_cast<double>(k), -2.0) / kZeta2;
      words.insert(words.end(), static_cast<std::size_t>(static_cast<double>(n_words) * share), vocabulary[k - 1]);
    }
    random.shuffle(words);
    RulerPrompt prompt = filled_row("fwe", {{"context", joined(words, " ")}});
    prompt.outputs.assign(vocabulary.begin() + 1, vocabulary.begin() + 4);
    return prompt;
  }

 private:
  std::size_t n_tokens_;  // most tokens of the prompt
};

}  // namespace

RulerWords read_ruler_words(const SampleOptions& options) {
  const auto list = [&](const char* name) {
    if (options.words.empty()) return distinct_lines(shipped_file(std::string("words/") + name));
    return distinct_lines(read_text_file(std::filesystem::path(options.words) / name));
  };
  RulerWords words = {list("adjectivelist.txt"), list("nounlist.txt"), list("verblist.txt"), {}};
  std::string text = joined_books(options);
  for (const Text& word : split(decode(text))) words.essay.push_back(encode(word));
  return words;
}

RulerGeneratorPtr make_vt_generator(const SampleOptions& options, std::int32_t length) {
  return std::make_unique<VtGenerator>(options, length);
}

RulerGeneratorPtr make_cwe_generator(const RulerWords& words, std::int32_t length) {
  return std::make_unique<CweGenerator>(words, length);
}

RulerGeneratorPtr make_fwe_generator(std::int32_t length, std::int32_t reserved) {
  return std::make_unique<FweGenerator>(length, reserved);
}

}  // namespace winnow::eval
