#include "eval/metrics.h"

#include <algorithm>
#include <array>
#include <string>

#include "eval/metrics/scores.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using PairScore = double (*)(TextView answer, TextView truth);

template <PairScore score>
double best_of(const Turn& turn, TextView answer) {
  double best = 0;
  for (const std::string& reference : turn.references) best = std::max(best, score(answer, decode(reference)));
  return best;
}

double needle_rouge(const Turn& turn, TextView answer) { return best_of<rouge1_stemmed>(turn, strip(answer)); }

constexpr auto kMetrics = std::to_array<Metric>({
    {"f1", "F1 of words without articles and punctuation", best_of<token_f1>},
    {"f1_zh", "F1 of Chinese words", best_of<chinese_f1>, true},
    {"rouge", "ROUGE-L of sentences", best_of<rouge_l>},
    {"rouge_zh", "ROUGE-L of Chinese words", best_of<chinese_rouge_l>, true},
    {"class", "the class, divided by the number of classes named", classification},
    {"count", "share of the numbers that are the right one", best_of<share_of_numbers>},
    {"retrieval", "share of the numbers that are the paragraph's", best_of<share_of_paragraphs>},
    {"code", "edit similarity of the first line of code", best_of<line_similarity>},
    {"ruler_all", "share of the answers contained, in any case", share_contained},
    {"ruler_part", "any of the answers contained, in any case", any_contained},
    {"niah", "ROUGE-1 of stemmed words with the needle", needle_rouge},
    {"needlebench", "the keyword contained", first_contained},
    {"needlebench_multi", "share of the keywords contained", share_contained_exact},
    {"needlebench_reasoning", "the last \\boxed{} is the name", boxed},
    {"digits", "the first run of digits", first_digits},
    {"kv_retrieval", "the value among the words", word_among},
    {"code_run", "the last word as an integer", last_integer},
    {"math_find", "the first number", first_number},
    {"math_calc", "share of the numbers right from the first on", leading_numbers},
    {"longdialogue", "the name among the words, in any case", upper_word_among},
    {"f1_zh_characters", "F1 of Chinese characters", best_of<chinese_character_f1>},
    {"rouge_l_sum", "ROUGE-L of lines, united", best_of<rouge_l_sum>},
    {"choice", "the letter or text of the right answer", multiple_choice},
    {"code_debug", "the letter or name of the faulty function", faulty_function},
    {"scbench_kv", "the value contained", first_contained},
    {"scbench_any", "any of the answers contained, in any case", any_contained_upper},
    {"scbench_share", "share of the names contained, two decimals", share_contained_2},
    {"scbench_choice", "the letter or text of the right answer", multiple_choice_stripped},
    {"scbench_mf", "the first number, cut to an integer where the answer is one", first_number_whole},
    {"repoqa", "the function is the one most like the answer, BLEU 0.8 or more", best_function},
});

}  // namespace

std::span<const Metric> metrics() { return kMetrics; }

const Metric& find_metric(std::string_view name) {
  const auto found = std::find_if(kMetrics.begin(), kMetrics.end(), [&](const Metric& m) { return m.name == name; });
  if (found == kMetrics.end()) throw Error(ErrorCode::kInternal, "no metric is named '" + std::string(name) + "'");
  return *found;
}

bool metric_wants_jieba(std::string_view metric) { return find_metric(metric).chinese_words; }

double score_answer(const Sample& sample, const Turn& turn, std::string_view answer) {
  Text text = decode(answer);
  if (sample.first_line_only) text = split_at(strip_left(text, '\n'), '\n')[0];
  return find_metric(turn.metric).score(turn, text);
}

}  // namespace winnow::eval
