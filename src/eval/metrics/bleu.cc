#include <cmath>
#include <map>

#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kOrder = 4;
constexpr double kSmoothing = 5;       // NLTK's k
constexpr double kSameFunction = 0.8;  // SCBench's threshold

// Returns re.split(r"\s+", text.strip()): an empty text is one empty word.
std::vector<Text> words_or_none(TextView text) {
  std::vector<Text> words = split(text);
  if (words.empty()) words.emplace_back();
  return words;
}

std::map<std::vector<Text>, int> n_grams(const std::vector<Text>& words, std::size_t n) {
  std::map<std::vector<Text>, int> counts;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    ++counts[{words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + n)}];
  }
  return counts;
}

// Returns the content of the first code block between fences at line beginnings, or the whole answer.
TextView code_block(TextView answer) {
  answer = strip(answer);
  const auto fence_from = [&](std::size_t from) {
    for (std::size_t at = answer.find(U"```", from); at != TextView::npos; at = answer.find(U"```", at + 1)) {
      if (at == 0 || answer[at - 1] == '\n') return at;
    }
    return TextView::npos;
  };
  for (std::size_t open = fence_from(0); open != TextView::npos; open = fence_from(open + 1)) {
    // A language may follow the fence, then white space with line ends; the block begins after the last of these.
    std::size_t at = open + 3;
    while (at < answer.size() && is_word_character(answer[at])) ++at;
    std::size_t begin = 0;
    for (; at < answer.size() && is_space(answer[at]); ++at) begin = answer[at] == '\n' ? at + 1 : begin;
    if (begin == 0) continue;
    const std::size_t close = fence_from(begin);
    if (close != TextView::npos) return answer.substr(begin, close - begin);
  }
  return answer;
}

}  // namespace

double bleu(TextView answer, TextView truth) {
  const std::vector<Text> words = words_or_none(answer);
  const std::vector<Text> reference = words_or_none(truth);
  const auto n_words = static_cast<double>(words.size());
  double sum = 0;
  double zeros = 0;
  for (std::size_t n = 1; n <= kOrder; ++n) {
    const auto wanted = n_grams(reference, n);
    double matched = 0;
    for (const auto& [gram, count] : n_grams(words, n)) {
      const auto found = wanted.find(gram);
      if (found != wanted.end()) matched += std::min(count, found->second);
    }
    if (n == 1 && matched == 0) return 0;
    if (matched == 0 && words.size() > 1) matched = std::log(n_words) / (std::pow(2, ++zeros) * kSmoothing);
    const double total = words.size() < n ? 1 : n_words - static_cast<double>(n) + 1;
    if (matched > 0) sum += std::log(matched / total) / kOrder;
  }
  const auto n_reference = static_cast<double>(reference.size());
  const double brevity = n_words > n_reference ? 1 : std::exp(1 - n_reference / n_words);
  return brevity * std::exp(sum);
}

double best_function(const Turn& turn, TextView answer) {
  const TextView code = code_block(answer);
  double best = 0;
  const std::string* best_text = nullptr;
  for (const std::string& function : turn.classes) {
    const double similarity = bleu(code, decode(function));
    if (similarity > best) {
      best = similarity;
      best_text = &function;
    }
  }
  const bool right = best_text != nullptr && !turn.references.empty() && *best_text == turn.references[0];
  return right && best >= kSameFunction ? 1 : 0;
}

}  // namespace winnow::eval
