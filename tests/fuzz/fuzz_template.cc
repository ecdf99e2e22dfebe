// Chat templates, which come with model files. An input's first byte says what is rendered, or from 64 on that it is
// not rendered; the rest is the template. Every template is parsed. Trying out what it can do takes a hundred times as
// long, and rendering more, so only one in sixteen, by a hash, is tried out and perhaps rendered. The result is used:
// the grammar of calls is parsed, and answers are read by its format. Templates get fewer steps than in the product,
// since otherwise those that take all of them would use most of the time.
#include <array>
#include <cstdint>
#include <string>

#include "base/fnv1a.h"
#include "model/tiny_model.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/tokenizer.h"
#include "winnow/error.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)

std::vector<ChatMessage> chat(bool has_calls) {
  std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", "Is it raining in Oslo?"}};
  if (!has_calls) return messages;
  ChatMessage call{"assistant", ""};
  call.tool_calls.push_back({"call_1", "weather", R"({"city":"Oslo"})"});
  ChatMessage result{"tool", "yes"};
  result.tool_call_id = "call_1";
  messages.insert(messages.end(), {call, result});
  return messages;
}

void read_answers(const ChatPrompt& prompt) {
  for (const char* answer :
       {"Yes.", "<think>\nOh\n</think>\n\nYes.",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"}) {
    ChatReader reader(prompt.format);
    reader.add(answer);
    reader.finish();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TinyModel file({.n_layer = 1});
  static const Tokenizer tokenizer(file.path());
  if (size == 0) return 0;
  const std::uint8_t how = data[0];
  const bool is_tried = winnow::Fnv1a().add(data, size).value() >> 60 == 0;
  ChatOptions options;
  options.continues_last = how % 2 == 1;
  options.enable_thinking = how / 2 % 2 == 0;
  if (how / 4 % 2 == 1) {
    options.tools = {{"weather", "Of a city.", R"({"type":"object","properties":{"city":{"type":"string"}}})"}};
    options.tool_choice = how / 8 % 2 == 0 ? ToolChoice::kAuto : ToolChoice::kRequired;
  }
  std::vector<ChatMessage> messages = chat(how / 16 % 2 == 1);
  if (options.continues_last) messages.push_back({"assistant", "It "});
  try {
    const ChatTemplate source(tokenizer.model(), std::string(reinterpret_cast<const char*>(data) + 1, size - 1),
                              {.trial = is_tried ? 50'000U : 0, .rendering = 200'000});
    if (!source.exists() || !is_tried || how >= 64) return 0;
    const ChatPrompt prompt = source.apply(messages, options);
    read_answers(prompt);
    if (!prompt.grammar.empty()) parse_grammar(prompt.grammar, tokenizer.vocab());
  } catch (const Error&) {
  }
  return 0;
}
