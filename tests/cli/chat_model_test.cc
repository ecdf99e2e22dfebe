// `winnow chat` with a real model. Needs WINNOW_TEST_MODEL, a small instruction-tuned one.
#include <gtest/gtest.h>

#include <string>

#include "cli/tool_with_model.h"

namespace winnow::test {
namespace {

TEST_F(ToolWithModel, ChatRemembersAndSaves) {
  take_whole_model();
  ProcessOptions first, second;
  const std::string path = directory_.file("talk");
  first.input = "What is the capital of Japan?\n/stats\n/save " + path + "\n";
  const ProcessResult saved = tool("chat", {"--temp", "0", "-n", "24"}, first);
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_EQ(saved.out, "The capital of Japan is Tokyo.\n");
  EXPECT_NE(saved.err.find("KV cache"), std::string::npos);
  EXPECT_EQ(saved.err.find("> "), std::string::npos) << "a prompt was printed without a terminal";
  second.input = "/load " + path + "\nAnd of Italy?\n/quit\nnever read\n";
  const ProcessResult loaded = tool("chat", {"--temp", "0", "-n", "24"}, second);
  ASSERT_EQ(loaded.exit_code, 0) << loaded.err;
  // Only the saved turn says what the second question asks for.
  EXPECT_EQ(loaded.out, "The capital of Italy is Rome.\n");
}

TEST_F(ToolWithModel, ChatKeepsShortConversationsWhole) {
  Words flags{"--temp", "0", "-n", "4", "--kv-budget", "5%bytes"};
  ProcessOptions options;
  options.input = "Hi\n/stats\n";
  const ProcessResult brief = tool("chat", flags, options);
  ASSERT_EQ(brief.exit_code, 0) << brief.err;
  EXPECT_NE(brief.err.find("(100.0 %)"), std::string::npos) << brief.err;
  // From there on all of it is cut, as if it had been read at once.
  options.input = "Hi\n" + long_text() + "\n/stats\n";
  const ProcessResult cut = tool("chat", flags, options);
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(cut.err.find("(100.0 %)"), std::string::npos) << cut.err;
  flags.insert(flags.end(), {"--kv-min", "0"});
  options.input = "Hi\n";
  expect_error(tool("chat", flags, options), 1, "that are always kept of the prompt's");
  expect_error(tool("chat", {"--kv-min", "9"}, options), 2, "--kv-min has no effect");
}

// An answer, too, may carry a conversation past --kv-min.
TEST_F(ToolWithModel, ChatCutsAfterALongAnswerAsAFirstPrompt) {
  take_whole_model();
  ProcessOptions options;
  options.input = "Write a long story about a river.\nGo on.\n/stats\n";
  const ProcessResult result =
      tool("chat", {"--temp", "0", "-n", "100", "--kv-budget", "kl=0.5", "--kv-min", "64"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("\npromise "), std::string::npos) << result.err;
}

TEST_F(ToolWithModel, ChatGoesOnWithAShortConversationThatItLoads) {
  const std::string path = directory_.file("short");
  ProcessOptions options;
  options.input = "Hi\n/save " + path + "\n";
  ASSERT_EQ(tool("chat", {"--temp", "0", "-n", "4", "--kv-budget", "5%bytes"}, options).exit_code, 0);
  const auto loaded = [&](const Words& more, const std::string& message) {
    Words flags{"--temp", "0", "-n", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    options.input = "/load " + path + "\n" + message + "\n/stats\n";
    const ProcessResult result = tool("chat", flags, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  for (const Words& flags : {Words{}, Words{"--kv-budget", "64"}}) {
    EXPECT_NE(loaded(flags, "And again.").find("(100.0 %)"), std::string::npos);
    EXPECT_EQ(loaded(flags, long_text()).find("(100.0 %)"), std::string::npos);
  }
}

// KVzip repeats the prompt to score it, which a later turn cannot.
TEST_F(ToolWithModel, ChatAsksAboutADocumentThatCannotBeCutAgain) {
  const std::string book = directory_.write("book", long_text());
  ProcessOptions options;
  options.input = "What was found on day 3?\nAnd on day 10?\n/stats\n";
  const std::pair<const char*, const char*> cuts[] = {{"kvzip", "200"}, {"kvzip", "20%"}, {"kvzip+", "200"}};
  for (const auto& [method, budget] : cuts) {
    SCOPED_TRACE(std::string(method) + " " + budget);
    const ProcessResult result =
        tool("chat", {"-f", book, "--temp", "0", "-n", "4", "--kv-evict", method, "--kv-budget", budget}, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("(100.0 %)"), std::string::npos) << result.err;
  }
}

// A tokenizer joins the end of a message to the beginning of the template's text behind it.
TEST_F(ToolWithModel, ChatSeesThatALoadedMessageHasEnded) {
  const std::string text =
      "{% for m in messages %}({{ m.content }})\n{% endfor %}{% if add_generation_prompt %}Answer:{% endif %}";
  const Words flags{"--temp", "0", "-n", "4", "--chat-template-file", directory_.write("template", text)};
  const std::string path = directory_.file("talk");
  const auto kept = [&](const std::string& input) {  // the number of entries tells how many tokens were read
    ProcessOptions options;
    options.input = input + "And why?\n/stats\n";
    const ProcessResult result = tool("chat", flags, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::size_t begin = result.err.find("kept ");
    return result.err.substr(std::min(begin, result.err.size()), 40);
  };
  const std::string expected = kept("Who are you?\n/save " + path + "\n");
  EXPECT_NE(expected, "");
  EXPECT_EQ(kept("/load " + path + "\n"), expected);
}

// A document that was saved before the first question is still without the end of its message.
TEST_F(ToolWithModel, ChatAsksAboutADocumentThatItLoads) {
  const Words flags = {"--temp", "0", "-n", "12"};
  const std::string book = directory_.write("book", "The key lies under the third stone. The door is green.");
  const std::string path = directory_.file("book.ctx");
  const auto chat = [&](Words more, const std::string& input) {
    ProcessOptions options;
    options.input = input;
    more.insert(more.end(), flags.begin(), flags.end());
    const ProcessResult result = tool("chat", more, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::size_t kept = result.err.find("kept ");  // the number of entries tells how many tokens were read
    return result.out + result.err.substr(std::min(kept, result.err.size()), 40);
  };
  const std::string asked = "Where is the key?\nAnd the door?\n/stats\n";
  const std::string expected = chat({"-f", book}, asked);
  EXPECT_NE(expected.find("kept "), std::string::npos);
  chat({"-f", book}, "/save " + path + "\n");
  EXPECT_EQ(chat({}, "/load " + path + "\n" + asked), expected);
}

TEST_F(ToolWithModel, ChatTakesCommandsWithSpacesAndLinesOfOtherSystems) {
  ProcessOptions options;
  options.input = "/stats \r\n/clear  \n/quit \nnever read\n";
  const ProcessResult result = tool("chat", {}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("KV cache"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("load 0.00 s"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("(cleared)"), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST_F(ToolWithModel, ChatShowsWhatALoadedConversationGoesOnWith) {
  const Words flags{"--temp", "0", "-n", "4", "-c", "300", "--kv-evict", "snapkv", "--kv-budget", "64"};
  const std::string path = directory_.file("talk");
  ProcessOptions options;
  options.input = "Hello!\n/save " + path + "\n/load " + path + "\n";
  const ProcessResult same = tool("chat", flags, options);
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(same.err.find("(loaded " + path + ")\n"), std::string::npos) << same.err;
  options.input = "/load " + path + "\n";
  const ProcessResult other = tool("chat", {}, options);
  EXPECT_NE(other.err.find("own settings: context 300, snapkv, budget 64)\n"), std::string::npos) << other.err;
  options.input += long_text() + "\n";
  const ProcessResult full = tool("chat", {}, options);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("more than the context of 300 with which '" + path), std::string::npos) << full.err;
}

TEST_F(ToolWithModel, InterruptEndsAChatInAScript) {
  take_whole_model();
  ProcessOptions options;
  options.input = "Write a very long story about a river.\nWrite another one.\n";
  options.react_after = 8;
  options.then_interrupt = true;
  const ProcessResult result = tool("chat", {"--temp", "0", "-n", "2000", "-v"}, options);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const std::size_t report = result.err.find("KV cache");  // of the first answer
  EXPECT_NE(report, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("KV cache", report + 1), std::string::npos) << result.err;
}

TEST_F(ToolWithModel, ChatCountsAMessagesOwnBytes) {
  ProcessOptions options;
  options.input = "caf\xE9!\n";
  expect_error(tool("chat", {}, options), 1, "the message is not UTF-8 at byte 3");
}

TEST_F(ToolWithModel, ChatStopsAtAWrongCommandInAScript) {
  ProcessOptions options;
  options.input = "/sav x\n";
  expect_error(tool("chat", {}, options), 1, "did you mean /save?");
  options.input = "/load " + directory_.write("foreign", "no session") + "\n";
  expect_error(tool("chat", {}, options), 1, "foreign");
}

}  // namespace
}  // namespace winnow::test
