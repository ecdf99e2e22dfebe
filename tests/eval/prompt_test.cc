#include "eval/run/prompt.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <functional>

#include "eval/run/decoding.h"
#include "eval/run_test_support.h"
#include "expect_error.h"
#include "model/byte_pair_model.h"

namespace winnow::eval {
namespace {

constexpr const char* kHeader = "<|im_start|>user\n";
constexpr const char* kMiddle = "<|im_end|>\n<|im_start|>assistant\n";

class PromptTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = test::chat_model(); }
  static void TearDownTestSuite() { model_.reset(); }

  // Returns the prompt's text without the begin token, which every whole prompt must have.
  static std::string whole_text(const std::vector<Token>& tokens) {
    EXPECT_EQ(tokens.at(0), 1);
    return text(std::vector<Token>(tokens.begin() + 1, tokens.end()));
  }
  static std::string text(const std::vector<Token>& tokens) {
    std::string text;
    for (const Token token : tokens) text += model_->token_text(token, true);
    return text;
  }
  static Sample sample() { return test::work_item(1, QuestionMode::kAgnostic).sample; }

  static std::shared_ptr<const Model> model_;
};
std::shared_ptr<const Model> PromptTest::model_;

TEST_F(PromptTest, AwareWithAndWithoutTemplate) {
  const Sample s = sample();
  const std::string all = s.context + " what is it? It is";
  EXPECT_EQ(whole_text(PromptBuilder(model_, false, 2000).whole(s, 0).tokens), all);
  EXPECT_EQ(whole_text(PromptBuilder(model_, true, 2000).whole(s, 0).tokens), kHeader + all + kMiddle);
  Sample behind = s;
  behind.prefix_behind_header = true;
  EXPECT_EQ(whole_text(PromptBuilder(model_, true, 2000).whole(behind, 0).tokens),
            kHeader + s.context + " what is it? " + kMiddle + "It is");
  EXPECT_EQ(whole_text(PromptBuilder(model_, false, 2000).whole(behind, 0).tokens), all);
  Sample plain = s;
  plain.chat_template = false;
  EXPECT_EQ(whole_text(PromptBuilder(model_, true, 2000).whole(plain, 0).tokens), all);
}

TEST_F(PromptTest, AgnosticIsCutBeforeTheQuestion) {
  const Sample s = sample();
  const PromptBuilder chat(model_, true, 2000), plain(model_, false, 2000);
  EXPECT_EQ(whole_text(chat.context(s).tokens), kHeader + s.context);
  EXPECT_EQ(text(chat.question(s, 0)), std::string(" what is it? ") + kMiddle + "It is");
  EXPECT_EQ(whole_text(plain.context(s).tokens), s.context);
  EXPECT_EQ(text(plain.question(s, 0)), " what is it? It is");
}

TEST_F(PromptTest, TheMiddleIsLeftOut) {
  const Sample s = sample();
  const std::string all = s.context + " what is it? It is";
  // 100 tokens of context, less 6 of the answer and the begin token, leave 93: 46 and 46 are kept.
  const Prompt prompt = PromptBuilder(model_, false, 100).whole(s, 0);
  EXPECT_TRUE(prompt.is_truncated);
  EXPECT_FALSE(PromptBuilder(model_, false, 2000).whole(s, 0).is_truncated);
  const std::string shortened = whole_text(prompt.tokens);
  EXPECT_TRUE(all.starts_with(shortened.substr(0, 46)));
  EXPECT_TRUE(all.ends_with(shortened.substr(shortened.size() - 46)));
  EXPECT_LE(prompt.tokens.size() + 6, 100U);
  EXPECT_GE(prompt.tokens.size() + 6, 98U);
}

TEST_F(PromptTest, AgnosticTruncationLeavesTheQuestionWhole) {
  const Sample s = sample();
  for (const bool use_template : {false, true}) {
    const PromptBuilder builder(model_, use_template, 140);
    const Prompt context = builder.context(s);
    EXPECT_TRUE(context.is_truncated);
    const std::size_t n = context.tokens.size() + builder.question(s, 0).size() + 6;
    EXPECT_LE(n, 140U);
    EXPECT_GE(n, 138U);
  }
}

TEST_F(PromptTest, CharactersAcrossTheGapAreReplaced) {
  Sample s = sample();
  s.context.clear();
  for (int i = 0; i < 100; ++i) s.context += "\xC3\xA9";
  const Prompt prompt = PromptBuilder(model_, false, 101).whole(s, 0);
  EXPECT_TRUE(prompt.is_truncated);
}

TEST_F(PromptTest, NoRoomAtAll) {
  test::expect_error(ErrorCode::kContextFull, "leave no room for the text",
                     [&] { PromptBuilder(model_, true, 60).context(sample()); });
}

TEST_F(PromptTest, LaterTurnsFollowTheReference) {
  Sample s = sample();
  s.turns.push_back({.question = "and then?", .follow_up = "xyz\n\nand then?", .references = {"w"}, .max_new = 6});
  EXPECT_TRUE(is_multi_turn(s));
  EXPECT_EQ(text(PromptBuilder(model_, false, 2000).follow_up(s, 1)), "xyz\n\nand then?");
  EXPECT_EQ(text(PromptBuilder(model_, true, 2000).follow_up(s, 1)),
            std::string("xyz<|im_end|>\n") + kHeader + "and then?" + kMiddle);
}

TEST_F(PromptTest, ReferencesGoOnWhereThePromptEnds) {
  Sample s = sample();
  const PromptBuilder chat(model_, true, 2000), plain(model_, false, 2000);
  EXPECT_EQ(text(plain.reference(s, 0, QuestionMode::kAware)), " xyz");    // after "It is"
  EXPECT_EQ(text(chat.reference(s, 0, QuestionMode::kAware)), "xyz");      // after the header's newline
  EXPECT_EQ(text(chat.reference(s, 0, QuestionMode::kAgnostic)), " xyz");  // after "It is", which follows the header
  s.turns[0].references.clear();
  EXPECT_TRUE(plain.reference(s, 0, QuestionMode::kAware).empty());
}

std::shared_ptr<const Model> model_with(const std::function<void(gguf_context*)>& edit) {
  const test::TinyModel file({.n_vocab = 400, .edit_metadata = edit});
  return Model::load(file.path());
}

std::shared_ptr<const Model> model_that_adds_space() {
  return model_with([](gguf_context* file) { gguf_set_val_bool(file, "tokenizer.ggml.add_space_prefix", true); });
}

TEST_F(PromptTest, AReferenceHasOneSpaceBeforeIt) {
  const std::shared_ptr<const Model> model = model_that_adds_space();
  const PromptBuilder plain(model, false, 2000);
  std::string all;
  for (const Token token : plain.reference(sample(), 0, QuestionMode::kAware)) all += model->token_text(token, true);
  EXPECT_EQ(all, " xyz");
}

TEST(AnswerTextTest, LosesTheSpaceThatTheTokenizerAdds) {
  const std::shared_ptr<const Model> adding = model_that_adds_space(), plain = test::chat_model();
  const auto there_and_back = [](const Model& model, const std::string& text) {
    return answer_text(model, model.tokenize(text, false, false));
  };
  for (const std::string text : {"", "C.", " C.", "  C ."}) {
    EXPECT_EQ(there_and_back(*adding, text), text);
    EXPECT_EQ(there_and_back(*plain, text), text);
  }
  EXPECT_EQ(answer_text(*adding, plain->tokenize(" C .", false, false)), "C .");
  // Half a character, and a special token.
  constexpr Token kFirstByte = 3;
  EXPECT_EQ(answer_text(*adding, std::vector<Token>{kFirstByte + 0xE6, 1, kFirstByte + 'x'}), "\uFFFDx");
}

TEST(AnswerTextTest, OfBytePairsIsThatOfTheTokens) {
  const std::shared_ptr<const Model> model =
      model_with([](gguf_context* file) { test::set_byte_pairs(file, "llama3", 12); });
  const std::vector<Token> tokens = model->tokenize(" C , it 's .", false, false);
  EXPECT_NE(model->detokenize(tokens), " C , it 's .");
  EXPECT_EQ(answer_text(*model, tokens), " C , it 's .");
}

TEST_F(PromptTest, ContinuationsAreSplitWhereTheTextEnds) {
  Sample s = sample();
  s.turns[0].references = {"the rest of it"};
  const auto continued = PromptBuilder(model_, false, 2000).continued(s);
  EXPECT_EQ(whole_text(continued.text), s.context);
  EXPECT_EQ(text(continued.continuation), "the rest of it");
  EXPECT_EQ(continued.n_feed, 6U);  // as many as the turn asks for
  const auto n_all = static_cast<std::int32_t>(continued.text.size() + continued.n_feed);
  EXPECT_EQ(PromptBuilder(model_, false, n_all).continued(s).text, continued.text);
  test::expect_error(ErrorCode::kContextFull, "text and continuation have",
                     [&] { PromptBuilder(model_, false, n_all - 1).continued(s); });
  s.turns[0].references = {"x"};
  test::expect_error(ErrorCode::kBadFile, "fewer than two tokens",
                     [&] { PromptBuilder(model_, false, 2000).continued(s); });
}

TEST_F(PromptTest, AModelWithoutTemplate) {
  const test::TinyModel file;
  test::expect_error(ErrorCode::kUnsupported, "no chat template",
                     [&] { PromptBuilder(Model::load(file.path()), true, 2000); });
}

}  // namespace
}  // namespace winnow::eval
