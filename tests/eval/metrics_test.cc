#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "eval/chinese_words.h"
#include "eval/metrics/scores.h"
#include "eval/sample.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The tests use a dictionary of a dozen words in jieba's format, enough for the cases here.
class Metrics : public testing::Test {
 protected:
  void SetUp() override { set_jieba(WINNOW_EVAL_TEST_DATA "/jieba"); }
  void TearDown() override { set_jieba(""); }
};

TEST_F(Metrics, HandCheckedPairs) {
  std::map<std::string, int> n_pairs;
  for (const nlohmann::json& pair : lines_of(WINNOW_EVAL_TEST_DATA "/metric_pairs.jsonl")) {
    Turn turn;
    turn.metric = pair.at("metric");
    turn.references = pair.at("references").get<std::vector<std::string>>();
    if (pair.contains("classes")) turn.classes = pair["classes"].get<std::vector<std::string>>();
    EXPECT_NEAR(score_answer({}, turn, pair.at("answer").get<std::string>()), pair.at("score").get<double>(), 1e-6)
        << pair;
    ++n_pairs[turn.metric];
  }
  for (const Metric& metric : metrics()) EXPECT_GE(n_pairs[std::string(metric.name)], 10) << metric.name;
}

std::string as_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns the metric of every task in the shared cases, except those of RULER that use ruler_all.
const std::map<std::string, std::string>& metric_of_task() {
  static const std::map<std::string, std::string> metrics = {{"narrativeqa", "f1"},
                                                             {"qasper", "f1"},
                                                             {"multifieldqa_en", "f1"},
                                                             {"multifieldqa_zh", "f1_zh"},
                                                             {"hotpotqa", "f1"},
                                                             {"2wikimqa", "f1"},
                                                             {"musique", "f1"},
                                                             {"dureader", "rouge_zh"},
                                                             {"gov_report", "rouge"},
                                                             {"qmsum", "rouge"},
                                                             {"multi_news", "rouge"},
                                                             {"trec", "class"},
                                                             {"triviaqa", "f1"},
                                                             {"samsum", "rouge"},
                                                             {"passage_count", "count"},
                                                             {"passage_retrieval_en", "retrieval"},
                                                             {"passage_retrieval_zh", "retrieval"},
                                                             {"lcc", "code"},
                                                             {"repobench-p", "code"},
                                                             {"passkey", "digits"},
                                                             {"number_string", "digits"},
                                                             {"kv_retrieval", "kv_retrieval"},
                                                             {"code_run", "code_run"},
                                                             {"code_debug", "code_debug"},
                                                             {"math_find", "math_find"},
                                                             {"math_calc", "math_calc"},
                                                             {"longdialogue_qa_eng", "longdialogue"},
                                                             {"longbook_qa_eng", "f1"},
                                                             {"longbook_qa_chn", "f1_zh_characters"},
                                                             {"longbook_sum_eng", "rouge_l_sum"},
                                                             {"longbook_choice_eng", "choice"},
                                                             {"niah", "niah"},
                                                             {"qa_1", "ruler_part"},
                                                             {"qa_2", "ruler_part"},
                                                             {"scbench_kv", "scbench_kv"},
                                                             {"scbench_choice_eng", "scbench_choice"},
                                                             {"scbench_qa_eng", "scbench_any"},
                                                             {"scbench_many_shot", "scbench_any"},
                                                             {"scbench_mf", "scbench_mf"},
                                                             {"scbench_vt", "scbench_share"}};
  return metrics;
}

TEST_F(Metrics, CasesScoredByTheBenchmarksOwnCode) {
  const char* shared = std::getenv("WINNOW_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "../shared is not here";
  const auto cases = lines_of(std::string(shared) + "/data/metrics/cases.jsonl");
  ASSERT_GE(cases.size(), 99U);
  for (const nlohmann::json& one : cases) {
    const std::string task = one.at("task");
    const auto found = metric_of_task().find(task);
    Turn turn;
    turn.metric = found == metric_of_task().end() ? "ruler_all" : found->second;
    const nlohmann::json& answers = one.at("answers");
    if (answers.is_array()) {
      for (const nlohmann::json& answer : answers) turn.references.push_back(as_text(answer));
    } else {
      turn.references.push_back(as_text(answers));
    }
    if (one.contains("all_classes")) turn.classes = one["all_classes"].get<std::vector<std::string>>();
    Sample sample;
    sample.first_line_only = task == "trec" || task == "triviaqa" || task == "samsum" || task == "lsht";
    const double scale = one.at("bench") == "niah" ? 10 : 1;  // NIAH's heat maps go to 10; RULER rounds to 4 decimals
    EXPECT_NEAR(score_answer(sample, turn, one.at("prediction").get<std::string>()) * scale,
                one.at("score").get<double>(), one.at("bench") == "ruler" ? 5e-5 : 1e-9)
        << one;
  }
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  for (const Text& word : chinese_words(decode(text))) result.push_back(encode(word));
  return result;
}

using Words = std::vector<std::string>;

TEST_F(Metrics, ChineseWordsByDictionaryAndModel) {
  EXPECT_EQ(words("他在清华大学读书。"), (Words{"他", "在", "清华大学", "读书", "。"}));
  EXPECT_EQ(words("C++ 50.5%\r\n中国"), (Words{"C++", " ", "50.5%", "\r\n", "中国"}));
  // Words that are not in the dictionary: the hidden Markov model takes 韩冰 and 杀难 for words.
  EXPECT_EQ(words("韩冰是"), (Words{"韩冰", "是"}));
  EXPECT_EQ(words("是杀难"), (Words{"是", "杀难"}));
  EXPECT_EQ(words(""), Words{});
}

TEST_F(Metrics, WithoutADictionaryChineseWordsAreCharacters) {
  set_jieba("");
  EXPECT_EQ(words("清华ab"), (Words{"清", "华", "a", "b"}));
  EXPECT_TRUE(metric_wants_jieba("f1_zh"));
  EXPECT_FALSE(metric_wants_jieba("f1"));
}

TEST_F(Metrics, AFolderThatIsNotJiebasIsAnError) {
  try {
    set_jieba("/no/such/folder");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("dict.txt"), std::string::npos);
  }
  EXPECT_EQ(words("清华大学"), Words{"清华大学"});  // the previous dictionary stays in use
}

TEST(PythonStr, CasesSpacesAndDigits) {
  EXPECT_EQ(encode(lower(decode("ÀÉİΣ"))), "àéi̇σ");
  EXPECT_EQ(encode(upper(decode("straße ǆ"))), "STRASSE Ǆ");
  EXPECT_EQ(split(decode("\x1f a\u00a0b\u3000\u2028c ")).size(), 3U);
  EXPECT_TRUE(is_digit(U'٣'));
  EXPECT_FALSE(is_digit(U'²'));
  EXPECT_TRUE(is_word_character(U'²'));
}

TEST(PythonStr, BrokenBytesBecomeReplacementCharacters) {
  EXPECT_EQ(decode("a\xe5\x8c"
                   "b"),
            U"a\xfffd"
            U"b");
  EXPECT_EQ(decode("\xff\xc0\x80"), U"\xfffd\xfffd\xfffd");
}

TEST(FuzzyRatio, FrequentCharactersOfALongTruthStartNoBlock) {
  // From 200 characters on, a character that makes up more than a hundredth of the truth (plus one) is junk to difflib.
  EXPECT_EQ(fuzzy_ratio(U"b" + Text(150, 'a'), U"c" + Text(198, 'a')), 86);  // 2 x 150 of 350
  EXPECT_EQ(fuzzy_ratio(U"b" + Text(150, 'a'), U"c" + Text(199, 'a')), 0);
}

}  // namespace
}  // namespace winnow::eval
