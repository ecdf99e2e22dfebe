// Tool calls and thinking with the templates of well-known models: answers are drawn at random under the grammar that a
// template's format asks for, and read again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "expect_error.h"
#include "model/tiny_model.h"
#include "winnow/chat.h"

namespace winnow::test {
namespace {

using Json = nlohmann::json;

// A template of each family, by its file in libllama's sources.
const std::map<std::string, std::string> kFamilies = {
    {"Qwen3", "Qwen-Qwen3-0.6B"},
    {"Qwen2.5", "Qwen-Qwen2.5-7B-Instruct"},
    {"Llama 3.1", "meta-llama-Llama-3.1-8B-Instruct"},
    {"Llama 3.2", "meta-llama-Llama-3.2-3B-Instruct"},
    {"Mistral Nemo", "mistralai-Mistral-Nemo-Instruct-2407"},
    {"gpt-oss", "openai-gpt-oss-120b"},
    {"Hermes 3", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"},
    {"Granite", "ibm-granite-granite-4.0"},
};
// Their calls have free parts (names of calls, texts without quotes), in which a model that says anything never ends.
const std::map<std::string, std::string> kFreeFamilies = {
    {"Qwen3.5", "Qwen3.5-4B"},
    {"Qwen3-Coder", "Qwen3-Coder"},
    {"Gemma 4", "google-gemma-4-31B-it"},
    {"Mistral Small", "Mistral-Small-3.2-24B-Instruct-2506"},
    {"LFM2", "LFM2-8B-A1B"},
};

const std::vector<ChatTool> kTools = {
    {"get_weather", "The weather of a city.",
     R"({"type":"object","properties":{"city":{"type":"string","enum":["Oslo","Rome"]},"hourly":{"type":"boolean"}},)"
     R"("required":["city","hourly"],"additionalProperties":false})"},
    {"get_time", "The time.",
     R"({"type":"object","properties":{"zone":{"type":"string","enum":["UTC","CET"]}},"required":["zone"]})"}};

std::shared_ptr<const Model> family_model(const std::string& file) {
  std::stringstream source;
  source << std::ifstream(std::string(WINNOW_TEMPLATES) + "/" + file + ".jinja").rdbuf();
  return Model::load(TinyModel({.chat_template = source.str()}).path());
}

struct Answer {
  ChatMessage whole, streamed;
  std::string text;
  bool has_ended = false;
};

// What the reader tells token by token, put together.
void put(const ChatDelta& delta, ChatMessage& message) {
  message.reasoning += delta.reasoning;
  message.content += delta.content;
  if (delta.tool_call < 0) return;
  if (!delta.name.empty()) message.tool_calls.push_back({delta.id, delta.name, ""});
  ASSERT_EQ(message.tool_calls.size(), static_cast<std::size_t>(delta.tool_call) + 1);
  message.tool_calls.back().arguments += delta.arguments;
}

// An answer that begins with `forced` and goes on at random.
Answer answer(const std::shared_ptr<const Model>& model, const ChatPrompt& prompt, std::uint32_t seed,
              const std::string& forced = "") {
  Answer made;
  Sampler sampler(
      model,
      {.temperature = 1, .top_k = 0, .seed = seed, .grammar = prompt.grammar, .grammar_start = prompt.grammar_start});
  ChatReader reader(prompt.format);
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(0, 1);
  const std::vector<Token> begin = forced.empty() ? std::vector<Token>() : model->tokenize(forced, false, true);
  std::vector<float> logits(static_cast<std::size_t>(model->info().n_vocab));
  for (std::size_t i = 0; i < 2000; ++i) {
    for (float& one : logits) one = logit(random);
    if (i < begin.size()) logits[static_cast<std::size_t>(begin[i])] = 1000;
    const Token token = sampler.sample(logits);
    made.has_ended = model->is_end_of_generation(token);
    if (made.has_ended) break;
    const std::string text = model->token_text(token, true);
    made.text += text;
    for (const ChatDelta& delta : reader.add(text)) put(delta, made.streamed);
  }
  for (const ChatDelta& delta : reader.finish(made.has_ended)) put(delta, made.streamed);
  made.whole = reader.message();
  return made;
}

void expect_calls(const Answer& made) {
  EXPECT_TRUE(made.has_ended) << made.text.substr(0, 300);
  ASSERT_FALSE(made.whole.tool_calls.empty()) << made.text.substr(0, 300);
  ASSERT_EQ(made.streamed.tool_calls.size(), made.whole.tool_calls.size());
  EXPECT_EQ(made.streamed.content, made.whole.content);
  EXPECT_EQ(made.streamed.reasoning, made.whole.reasoning);
  for (std::size_t i = 0; i < made.whole.tool_calls.size(); ++i) {
    const ChatToolCall& call = made.whole.tool_calls[i];
    EXPECT_EQ(made.streamed.tool_calls[i].arguments, call.arguments);
    EXPECT_EQ(made.streamed.tool_calls[i].name, call.name);
    EXPECT_FALSE(call.id.empty());
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call.arguments;
    if (call.name == "get_weather") {
      EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << call.arguments;
      EXPECT_TRUE(arguments["hourly"].is_boolean()) << call.arguments;
    } else {
      EXPECT_EQ(call.name, "get_time");
      EXPECT_TRUE(arguments["zone"] == "UTC" || arguments["zone"] == "CET") << call.arguments;
    }
  }
}

TEST(ChatToolsTest, RequiredCallsFollowTheirSchemas) {
  for (const auto& [family, file] : kFamilies) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    const ChatPrompt prompt = model->apply_chat_template(
        messages, {.tools = kTools, .tool_choice = ToolChoice::kRequired, .enable_thinking = false});
    EXPECT_NE(prompt.text.find("The weather of a city."), std::string::npos);
    ASSERT_FALSE(prompt.grammar.empty());
    EXPECT_FALSE(prompt.grammar_start.is_lazy);
    std::set<std::string> names;
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(seed);
      const Answer made = answer(model, prompt, seed);
      expect_calls(made);
      for (const ChatToolCall& call : made.whole.tool_calls) names.insert(call.name);
    }
    EXPECT_EQ(names.size(), 2U);
  }
}

// Gemma's own form of arguments is not held to their schema by libllama-common; its calls are read all the same.
TEST(ChatToolsTest, Gemma) {
  const auto model = family_model("google-gemma-4-31B-it");
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false});
  ChatReader reader(prompt.format);
  reader.add("<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,hourly:true}<tool_call|>");
  reader.finish(true);
  ASSERT_EQ(reader.message().tool_calls.size(), 1U);
  EXPECT_EQ(reader.message().tool_calls[0].name, "get_weather");
  EXPECT_EQ(Json::parse(reader.message().tool_calls[0].arguments), Json({{"city", "Oslo"}, {"hourly", true}}));
}

TEST(ChatToolsTest, TemplatesWithoutTools) {
  for (const char* file : {"HuggingFaceTB-SmolLM3-3B", "microsoft-Phi-3.5-mini-instruct", "google-gemma-2-2b-it"}) {
    SCOPED_TRACE(file);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    expect_error(ErrorCode::kUnsupported, "knows no tools",
                 [&] { model->apply_chat_template(messages, {.tools = kTools}); });
  }
}

// A call that is made, and its answer, stand in the next prompt.
TEST(ChatToolsTest, AnswersOfTools) {
  std::map<std::string, std::string> families = kFamilies;
  families.insert(kFreeFamilies.begin(), kFreeFamilies.end());
  for (const auto& [family, file] : families) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    messages.push_back({.role = "assistant",
                        .content = "",
                        .tool_calls = {{"abcDEF123", "get_weather", R"({"city":"Oslo","hourly":true})"}}});
    messages.push_back(
        {.role = "tool", .content = R"({"degrees":-7})", .tool_call_id = "abcDEF123", .name = "get_weather"});
    const std::string text = model->apply_chat_template(messages, {.tools = kTools}).text;
    EXPECT_NE(text.find("Oslo"), std::string::npos) << text;
    EXPECT_NE(text.find("-7"), std::string::npos) << text;
  }
}

// What begins a call is where the grammar begins; before it all may be said.
TEST(ChatToolsTest, CallsThatTheModelChooses) {
  int n_lazy = 0;
  for (const auto& [family, file] : kFamilies) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false});
    if (prompt.grammar.empty() || prompt.grammar_start.words.empty()) continue;
    EXPECT_TRUE(prompt.grammar_start.is_lazy);
    ++n_lazy;
    const Answer made = answer(model, prompt, 1, prompt.grammar_start.words.front());
    expect_calls(made);
    const ChatPrompt none = model->apply_chat_template(
        messages, {.tools = kTools, .tool_choice = ToolChoice::kNone, .enable_thinking = false});
    EXPECT_TRUE(none.grammar.empty());
  }
  EXPECT_GE(n_lazy, 4);
}

TEST(ChatToolsTest, ThoughtsAreToldApart) {
  const auto model = family_model(kFamilies.at("Qwen3"));
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, ChatOptions());
  ASSERT_NE(prompt.format, nullptr);
  const std::string text = "<think>\nLet me see.\n</think>\n\nIt rains.";
  ChatReader whole(prompt.format), pieces(prompt.format);
  whole.add(text);
  whole.finish(true);
  EXPECT_EQ(whole.message().reasoning, "Let me see.\n");
  EXPECT_EQ(whole.message().content, "It rains.");
  ChatMessage streamed;
  for (const char letter : text) {
    for (const ChatDelta& delta : pieces.add(std::string(1, letter))) put(delta, streamed);
  }
  for (const ChatDelta& delta : pieces.finish(true)) put(delta, streamed);
  EXPECT_EQ(streamed.content, "It rains.");
  EXPECT_EQ(streamed.reasoning, "Let me see.\n");

  // Without thinking the template says so, and with separates_thinking off all is content.
  EXPECT_NE(model->apply_chat_template(messages, {.enable_thinking = false}).text.find("<think>\n\n</think>"),
            std::string::npos);
  EXPECT_EQ(model->apply_chat_template(messages, {.separates_thinking = false}).format, nullptr);
  // Thoughts of earlier turns are not shown again.
  const std::vector<ChatMessage> later = {{"user", "Weather?"},
                                          {.role = "assistant", .content = "It rains.", .reasoning = "Let me see."},
                                          {"user", "And now?"}};
  EXPECT_EQ(model->apply_chat_template(later, ChatOptions()).text.find("Let me see.\n"), std::string::npos);
  // What would begin a call does not within thoughts.
  const ChatPrompt tools = model->apply_chat_template(messages, {.tools = kTools});
  ASSERT_FALSE(tools.grammar_start.words.empty());
  const std::string& word = tools.grammar_start.words.front();
  const Answer made = answer(model, tools, 1, "<think>\nI might " + word + " or not.\n</think>\n\n" + word);
  EXPECT_NE(made.whole.reasoning.find("or not."), std::string::npos);
  expect_calls(made);
}

TEST(ChatToolsTest, AMessageThatGoesOn) {
  for (const char* family : {"Qwen3", "Llama 3.1", "Hermes 3"}) {
    SCOPED_TRACE(family);
    const auto model = family_model(kFamilies.at(family));
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}, {"assistant", "The weather"}};
    const ChatPrompt prompt = model->apply_chat_template(messages, {.continues_last = true, .enable_thinking = false});
    EXPECT_TRUE(prompt.text.ends_with("The weather")) << prompt.text;
    ChatReader reader(prompt.format);
    std::string content;
    for (const char* piece : {" is", " fine."}) {
      for (const ChatDelta& delta : reader.add(piece)) content += delta.content;
    }
    for (const ChatDelta& delta : reader.finish(true)) content += delta.content;
    EXPECT_EQ(content, " is fine.");
  }
}

TEST(ChatToolsTest, LongAndDeepAnswers) {
  const auto model = family_model(kFamilies.at("Qwen3"));
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const auto read = [&](const std::string& text) {
    ChatReader reader(model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false}).format);
    reader.add(text);
    reader.finish(true);
    return reader.message();
  };
  const std::string words(300'000, 'x'), brackets(300'000, '[');
  EXPECT_EQ(read(words).content, words);
  const std::string call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": ";
  EXPECT_EQ(read(call + brackets).content, call + brackets);
  // As a client's beginning of an answer.
  const std::vector<ChatMessage> begun = {{"user", "Hi"}, {"assistant", call + brackets}};
  ChatReader reader(
      model->apply_chat_template(begun, {.continues_last = true, .tools = kTools, .enable_thinking = false}).format);
  reader.add("]");
  reader.finish(true);
}

TEST(ChatToolsTest, ArgumentsOfTheTemplate) {
  const auto model =
      Model::load(TinyModel({.chat_template = "{{ messages[0].content }} {{ mood|default('none') }}"}).path());
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  EXPECT_EQ(model->apply_chat_template(messages, {.arguments = {{"mood", "\"glad\""}}}).text, "Hi glad");
  EXPECT_EQ(model->apply_chat_template(messages, ChatOptions()).text, "Hi none");
}

// Nine letters, wherever the conversation has come from; the answer has the call's.
TEST(CallIds, AreMappedForTemplatesThatWantThemShort) {
  const auto model = family_model("mistralai-Mistral-Nemo-Instruct-2407");
  const auto text = [&](const std::string& call_id, const std::string& answer_id) {
    ChatMessage call{"assistant", ""};
    call.tool_calls.push_back({call_id, "get_time", R"({"zone":"UTC"})"});
    ChatMessage result{"tool", "12:00"};
    result.tool_call_id = answer_id;
    const std::vector<ChatMessage> messages = {{"user", "Time?"}, call, result};
    ChatOptions options;
    options.tools = kTools;
    return model->apply_chat_template(messages, options).text;
  };
  EXPECT_NE(text("abc123XYZ", "abc123XYZ").find("abc123XYZ"), std::string::npos);
  for (const std::string& id :
       {std::string("call_0123456789abcdef"), std::string(32, 'a'), std::string("1"), std::string()}) {
    const std::string made = text(id, id);
    const std::size_t at = made.find("\"id\": \"");
    ASSERT_NE(at, std::string::npos) << made;
    const std::string mapped = made.substr(at + 7, 9);
    EXPECT_NE(made.find("\"call_id\": \"" + mapped + "\""), std::string::npos) << made;
  }
}

}  // namespace
}  // namespace winnow::test
