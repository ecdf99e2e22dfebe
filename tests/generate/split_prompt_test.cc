// Chat prompts that are split before the question.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "sanitizers.h"
#include "winnow/generate.h"

namespace winnow::test {
namespace {

std::shared_ptr<const Model> chat_model() { return tiny_model({.chat_template = kChatmlTemplate}); }

TEST(SplitChat, CutsBetweenDocumentAndQuestion) {
  const auto model = chat_model();
  const SplitPrompt prompt = split_chat(*model, "Be brief.", "A document.\n\n", "A question?");
  EXPECT_EQ(prompt.before, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nA document.\n\n");
  EXPECT_EQ(prompt.after, "A question?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(split_chat(*model, "", "A", "B").before, "<|im_start|>user\nA");
  // The pieces add up to the whole.
  const std::vector<ChatMessage> whole{{"user", "AB"}};
  EXPECT_EQ(split_chat(*model, "", "A", "B").before + split_chat(*model, "", "A", "B").after,
            model->apply_chat_template(whole, true));
}

TEST(SplitChat, CutsAtAnyPlaceOfAnyMessage) {
  const auto model = chat_model();
  const std::vector<ChatMessage> messages{{"user", "one"}, {"assistant", "two"}, {"user", "three"}};
  const std::string whole = model->apply_chat_template(messages, true);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    for (std::size_t offset = 0; offset <= messages[i].content.size(); ++offset) {
      const SplitPrompt prompt = split_chat(*model, messages, {.message = i, .offset = offset});
      EXPECT_EQ(prompt.before + prompt.after, whole);
      EXPECT_TRUE(prompt.after.starts_with(messages[i].content.substr(offset)));
      EXPECT_TRUE(prompt.before.ends_with(messages[i].content.substr(0, offset)));
    }
  }
  test::expect_error(ErrorCode::kInvalidArgument, "outside of its messages",
                     [&] { split_chat(*model, messages, {.message = 3}); });
  test::expect_error(ErrorCode::kInvalidArgument, "outside of its messages",
                     [&] { split_chat(*model, messages, {.message = 0, .offset = 4}); });
}

TEST(SplitChat, TextsThatLookLikeTheMarkerAreTexts) {
  const auto model = chat_model();
  const SplitPrompt prompt = split_chat(*model, "", "<winnow-split>", "<winnow-split>>");
  EXPECT_TRUE(prompt.before.ends_with("<winnow-split>"));
  EXPECT_TRUE(prompt.after.starts_with("<winnow-split>>"));
}

// Whatever a template does to messages, the document's end is found, and the two pieces add up to the whole.
TEST(SplitChat, WellKnownTemplates) {
  int n_templates = 0;
  for (const auto& file : std::filesystem::directory_iterator(WINNOW_TEMPLATES)) {
    ++n_templates;
    if (kHasSanitizers && n_templates % 6 != 0) continue;
    SCOPED_TRACE(file.path().filename());
    const auto model = tiny_model({.chat_template = read_bytes(file.path())});
    const std::string document = "  The boot\n\n  was new.  \n\n", question = " Who found  it?\n";
    for (const char* system : {"", "Be brief."}) {
      std::vector<ChatMessage> messages{{"user", document + question}};
      if (*system != '\0') messages.insert(messages.begin(), {"system", system});
      const std::string whole = model->apply_chat_template(messages, true);
      const SplitPrompt prompt = split_chat(*model, system, document, question);
      EXPECT_EQ(prompt.before + prompt.after, whole);
      EXPECT_TRUE(prompt.before.ends_with("was new.  \n\n"));
      EXPECT_TRUE(prompt.after.starts_with(" Who found"));
      // The piece before the question does not depend on the question.
      EXPECT_EQ(split_chat(*model, system, document, "Why?").before, prompt.before);
      // A server splits a chat before the last question, whatever that begins with.
      const SplitPrompt last = split_chat(*model, messages, {.message = messages.size() - 1});
      EXPECT_EQ(last.before + last.after, whole);
    }
    const std::string turn = chat_turn(*model, "And then?");
    EXPECT_NE(turn.find("And then?"), std::string::npos);
  }
  EXPECT_GT(n_templates, 50);
}

TEST(SplitChat, NeedsATemplate) {
  try {
    split_chat(*tiny_model(), "", "A", "B");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST(ChatTurn, FollowsAnAnswer) {
  EXPECT_EQ(chat_turn(*chat_model(), "And then?"),
            "<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TokenizePrompt, TheBeginTokenComesFirst) {
  const auto model = chat_model();
  const PromptTokens both = tokenize(*model, {"ab", "cd"});
  EXPECT_EQ(both.context, model->tokenize("ab", true, true));
  EXPECT_EQ(both.question, model->tokenize("cd", false, true));
  const PromptTokens alone = tokenize(*model, {"", "cd"});
  EXPECT_TRUE(alone.context.empty());
  EXPECT_EQ(alone.question, model->tokenize("cd", true, true));
}

}  // namespace
}  // namespace winnow::test
