#include <set>

#include "eval/chinese_words.h"
#include "eval/metrics/longest_common.h"
#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

// Splits a text into sentences, which end at "."; a blank sentence is one empty word.
std::vector<std::vector<Text>> sentences_of(TextView text) {
  std::vector<std::vector<Text>> sentences;
  for (const Text& sentence : split_at(text, '.')) {
    if (sentence.empty()) continue;
    std::vector<Text> words = split(sentence);
    if (words.empty()) words.emplace_back();
    sentences.push_back(std::move(words));
  }
  return sentences;
}

std::size_t distinct_words(const std::vector<std::vector<Text>>& sentences) {
  std::set<TextView> words;
  for (const auto& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words.size();
}

}  // namespace

double rouge_l(TextView answer, TextView truth) {
  const auto evaluated = sentences_of(answer);
  const auto reference = sentences_of(truth);
  if (evaluated.empty() || reference.empty()) return 0;
  std::set<TextView> matched;
  for (const auto& r : reference) {
    for (const auto& s : evaluated) {
      for (const std::size_t index : CommonTable(r, s).matched(false)) matched.insert(r[index]);
    }
  }
  const auto n_matched = static_cast<double>(matched.size());
  const double precision = n_matched / static_cast<double>(distinct_words(evaluated));
  const double recall = n_matched / static_cast<double>(distinct_words(reference));
  return 2 * precision * recall / (precision + recall + 1e-8);
}

double chinese_rouge_l(TextView answer, TextView truth) {
  return rouge_l(join(chinese_words(answer), U" "), join(chinese_words(truth), U" "));
}

}  // namespace winnow::eval
