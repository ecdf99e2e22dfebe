#include <gtest/gtest.h>

#include <set>

#include "expect_error.h"
#include "study/calibrate/questions.h"
#include "study/calibrate/scorer_choice.h"
#include "study/passages.h"
#include "study/tiny_prompt.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using test::code_of;
using test::TemporaryDirectory;
using test::tiny_engine;

TEST(Questions, AreReadFromLines) {
  const TemporaryDirectory folder;
  const std::string path = folder.write(
      "q.jsonl", "{\"question\": \"Who?\", \"id\": 3}\n\n  \r\n{\"question\": \"\\u00dcber \\\"what\\\"?\"}");
  EXPECT_EQ(read_questions(path), (std::vector<std::string>{"Who?", "Über \"what\"?"}));
  EXPECT_GE(generic_questions().size(), 4U);
}

TEST(Questions, WrongFilesAreRefusedWithTheLine) {
  const TemporaryDirectory folder;
  const struct {
    const char *text, *reason;
  } cases[] = {{"", "no questions"},
               {"\n\n", "no questions"},
               {"{\"question\": \"a\"}\n{\"input\": \"b\"}\n", "line 2 has no field"},
               {"{\"question\": 3}", "line 1 has a \"question\" that is not a text"},
               {"{\"question\": \"  \"}", "not a text"},
               {"\n[\"a\"]", "line 2 is not a JSON object"},
               {"{\"question\": \"a\"", "line 1 is not a JSON object"}};
  for (const auto& c : cases) {
    std::string message;
    const std::string path = folder.write("q.jsonl", c.text);
    EXPECT_EQ(code_of([&] { read_questions(path); }, &message), ErrorCode::kBadFile) << c.text;
    EXPECT_NE(message.find(c.reason), std::string::npos) << message;
  }
  EXPECT_EQ(code_of([&] { read_questions(folder.file("none")); }), ErrorCode::kIo);
}

TEST(ScorerChoice, TakesTheDefaultsOfThePresetThatWillUseIt) {
  for (const char* name : {"snapkv", "keydiff", "expected-attention"}) {
    const std::string preset = std::string("lu-kv-") + name;
    EXPECT_EQ(choose_scorer(name).text(), preset);
    EXPECT_EQ(choose_scorer(preset).text(), preset);
    EXPECT_EQ(choose_scorer(name).scorer_text(), EvictionOptions::parse(preset).scorer_text());
  }
  EXPECT_EQ(choose_scorer("snapkv:window=16,pool=avg").text(), "lu-kv-snapkv:window=16,pool=avg");
  EXPECT_EQ(choose_scorer("tova").text(), "tova:layers=lu-kv,heads=lu-kv");
  EXPECT_EQ(choose_scorer("rms").text(), "snapkv:scorer=rms,layers=lu-kv,heads=lu-kv");
  EXPECT_EQ(choose_scorer("combined:rms-weight=3").scorer, "combined");
  EXPECT_EQ(choose_scorer("ada-snapkv").scorer_text(), EvictionOptions::parse("snapkv").scorer_text());
  // A method that an error message names is valid input.
  for (const char* method : {"snapkv:window=8", "lu-kv-expected-attention", "cake", "h2o", "knorm:sinks=2"}) {
    const std::string text = EvictionOptions::parse(method).scorer_text();
    EXPECT_EQ(choose_scorer(text).scorer_text(), text);
  }
}

TEST(ScorerChoice, RefusesWhatIsNoScorer) {
  EXPECT_EQ(code_of([] { choose_scorer("snapvk"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([] { choose_scorer(""); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([] { choose_scorer("full"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { choose_scorer("ada-snapkv:alpha=0.3"); }), ErrorCode::kInvalidArgument)
      << "nobody reads alpha";
  EXPECT_EQ(code_of([] { choose_scorer("snapkv:layers=cake"); }), ErrorCode::kInvalidArgument);
}

TEST(Passages, FollowTheSeedAndDoNotOverlap) {
  const auto engine = tiny_engine();
  const Model& model = *engine->model();
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + (i * i + i / 26) % 26);
  const std::vector<std::string> texts = {text, text + "x" + text};
  const std::vector<std::string> twelve = choose_passages(model, texts, 12, 50, 7);
  EXPECT_EQ(choose_passages(model, texts, 12, 50, 7), twelve);
  EXPECT_NE(choose_passages(model, texts, 12, 50, 8), twelve);
  const std::vector<std::string> five = choose_passages(model, texts, 5, 50, 7);
  EXPECT_TRUE(std::equal(five.begin(), five.end(), twelve.begin())) << "fewer are not the first of more";
  for (const std::string& passage : twelve) {
    EXPECT_NE((texts[0] + "|" + texts[1]).find(passage), std::string::npos) << passage;
  }
  std::string message;
  EXPECT_EQ(code_of([&] { choose_passages(model, {{std::string("too short")}}, 1, 50, 0); }, &message),
            ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("more text"), std::string::npos) << message;
}

TEST(Passages, LoseHalvesOfCharactersAtTheirEnds) {
  const auto engine = tiny_engine();
  const Model& model = *engine->model();
  const std::string text = "é€𝄞é€𝄞";
  const std::vector<Token> tokens = model.tokenize(text, false, false);
  for (std::size_t first = 0; first < tokens.size(); ++first) {
    for (std::size_t last = first; last <= tokens.size(); ++last) {
      const std::string passage = passage_text(model, std::span(tokens).subspan(first, last - first));
      EXPECT_NE(text.find(passage), std::string::npos);
      EXPECT_NO_THROW(model.tokenize(passage, false, false)) << first << " " << last;  // throws for invalid UTF-8
    }
  }
}

TEST(Passages, EveryTokensTextIsWhole) {
  const auto engine = tiny_engine();
  const Model& model = *engine->model();
  const std::string text = "aé€𝄞b é";
  const std::vector<Token> tokens = model.tokenize(text, false, false);
  std::string joined;
  const std::vector<std::string> texts = token_texts(model, tokens);
  ASSERT_EQ(texts.size(), tokens.size());
  for (const std::string& each : texts) {
    EXPECT_NO_THROW(model.tokenize(each, false, false)) << each;
    joined += each;
  }
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace winnow
