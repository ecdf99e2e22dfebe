#include <algorithm>
#include <map>

#include "eval/chinese_words.h"
#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Returns the words of the text in lower case, without ASCII punctuation and articles. Python replaces the words
// \b(a|an|the)\b by a space; here these are maximal runs of word characters.
std::vector<Text> normalised_words(TextView text) {
  Text kept;
  Text run;
  const auto end_run = [&] {
    kept += run == U"a" || run == U"an" || run == U"the" ? Text(U" ") : run;
    run.clear();
  };
  for (const char32_t c : lower(text)) {
    if (is_ascii_punctuation(c)) continue;
    if (is_word_character(c)) {
      run += c;
    } else {
      end_run();
      kept += c;
    }
  }
  end_run();
  return split(kept);
}

bool is_chinese_punctuation(char32_t c) {
  // LongBench's own list.
  static constexpr TextView kPunctuation =
      U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝"
      U"〞〟〰〾〿–—‘’‛“”„‟…‧﹏.";
  return is_ascii_punctuation(c) || kPunctuation.find(c) != TextView::npos;
}

Text normalised_chinese(TextView text) {
  Text kept;
  for (const char32_t c : lower(text)) {
    if (!is_chinese_punctuation(c) && !is_space(c)) kept += c;
  }
  return kept;
}

std::vector<Text> normalised_chinese_words(TextView text) {
  std::vector<Text> words;
  for (const Text& word : chinese_words(text)) {
    Text kept = normalised_chinese(word);
    if (!kept.empty()) words.push_back(std::move(kept));
  }
  return words;
}

std::vector<Text> characters(TextView text) {
  std::vector<Text> parts;
  for (const char32_t c : text) parts.emplace_back(1, c);
  return parts;
}

}  // namespace

double bag_f1(const std::vector<Text>& answer, const std::vector<Text>& truth) {
  std::map<Text, int> left;
  for (const Text& word : truth) ++left[word];
  int n_common = 0;
  for (const Text& word : answer) {
    const auto found = left.find(word);
    if (found != left.end() && found->second-- > 0) ++n_common;
  }
  if (n_common == 0) return 0;
  const double precision = 1.0 * n_common / static_cast<double>(answer.size());
  const double recall = 1.0 * n_common / static_cast<double>(truth.size());
  return 2 * precision * recall / (precision + recall);
}

double token_f1(TextView answer, TextView truth) { return bag_f1(normalised_words(answer), normalised_words(truth)); }

double chinese_f1(TextView answer, TextView truth) {
  return bag_f1(normalised_chinese_words(answer), normalised_chinese_words(truth));
}

double chinese_character_f1(TextView answer, TextView truth) {
  return bag_f1(characters(normalised_chinese(answer)), characters(normalised_chinese(truth)));
}

}  // namespace winnow::eval
