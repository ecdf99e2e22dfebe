#include <algorithm>
#include <map>
#include <set>

#include "eval/metrics/longest_common.h"
#include "eval/metrics/porter_stemmer.h"
#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

bool is_token_character(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::vector<Text> tokens(TextView text) { return runs_of(lower(text), is_token_character); }

std::vector<Text> stemmed_tokens(TextView text) {
  std::vector<Text> words = tokens(text);
  for (Text& word : words) {
    if (word.size() > 3) word = decode(porter_stem(encode(word)));
  }
  return words;
}

double f_measure(double hits, std::size_t n_answer, std::size_t n_truth) {
  if (hits == 0) return 0;
  const double precision = hits / static_cast<double>(n_answer);
  const double recall = hits / static_cast<double>(n_truth);
  return 2 * precision * recall / (precision + recall);
}

std::vector<std::vector<Text>> lines_of(TextView text) {
  std::vector<std::vector<Text>> lines;
  for (const Text& line : split_at(text, '\n')) {
    if (!line.empty()) lines.push_back(tokens(line));
  }
  return lines;
}

std::map<TextView, int> counts_of(const std::vector<std::vector<Text>>& lines, std::size_t& total) {
  std::map<TextView, int> counts;
  for (const auto& line : lines) {
    for (const Text& word : line) ++counts[word];
    total += line.size();
  }
  return counts;
}

}  // namespace

double rouge1_stemmed(TextView answer, TextView truth) { return bag_f1(stemmed_tokens(answer), stemmed_tokens(truth)); }

double rouge_l_sum(TextView answer, TextView truth) {
  const auto candidate = lines_of(answer);
  const auto reference = lines_of(truth);
  std::size_t n_answer = 0;
  std::size_t n_truth = 0;
  auto left_in_answer = counts_of(candidate, n_answer);
  auto left_in_truth = counts_of(reference, n_truth);
  if (n_answer == 0 || n_truth == 0) return 0;
  int hits = 0;
  for (const auto& line : reference) {
    std::set<std::size_t> united;
    for (const auto& other : candidate) {
      for (const std::size_t index : CommonTable(line, other).matched(true)) united.insert(index);
    }
    for (const std::size_t index : united) {
      int& in_answer = left_in_answer[line[index]];
      int& in_truth = left_in_truth[line[index]];
      if (in_answer > 0 && in_truth > 0) {
        --in_answer;
        --in_truth;
        ++hits;
      }
    }
  }
  return f_measure(hits, n_answer, n_truth);
}

}  // namespace winnow::eval
