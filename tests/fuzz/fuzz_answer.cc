// Answers of models, read for thoughts and calls by the formats of well-known templates. An input's first byte chooses
// the template, and its second the pieces in which the answer comes. The deltas of all pieces must add up to the
// message.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "model/tiny_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)

// One template of each family, by its file in libllama's sources.
constexpr const char* kFamilies[] = {"Qwen-Qwen3-0.6B",
                                     "Qwen3-Coder",
                                     "Qwen3.5-4B",
                                     "meta-llama-Llama-3.1-8B-Instruct",
                                     "Mistral-Small-3.2-24B-Instruct-2506",
                                     "openai-gpt-oss-120b",
                                     "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
                                     "google-gemma-4-31B-it",
                                     "LFM2-8B-A1B",
                                     "ibm-granite-granite-4.0"};

// Returns a prompt of each template with tools and one without.
std::vector<ChatPrompt> prompts(const Tokenizer& tokenizer) {
  const ChatTool tool{"weather", "Of a city.", R"({"type":"object","properties":{"city":{"type":"string"}}})"};
  std::vector<ChatPrompt> all;
  for (const char* family : kFamilies) {
    const std::string source = test::read_bytes(std::string(WINNOW_TEMPLATES) + "/" + family + ".jinja");
    const ChatTemplate one(tokenizer.model(), source);
    std::vector<ChatMessage> messages = {{"user", "Is it raining in Oslo?"}};
    all.push_back(one.apply(messages, {.tools = {tool}}));
    all.push_back(one.apply(messages, {}));
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TinyModel file({.n_layer = 1});
  static const Tokenizer tokenizer(file.path());
  static const std::vector<ChatPrompt> all = prompts(tokenizer);
  if (size < 2) return 0;
  const std::string text = valid_utf8(std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));
  const std::size_t n_piece = 8 + data[1] % 64;  // the whole answer so far is read again with each piece
  ChatReader reader(all[data[0] % all.size()].format);
  std::string content, reasoning;
  const auto take = [&](const std::vector<ChatDelta>& deltas) {
    for (const ChatDelta& delta : deltas) {
      content += delta.content;
      reasoning += delta.reasoning;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = whole_characters(std::string_view(text).substr(at), n_piece);
    take(reader.add(std::string_view(text).substr(at, n)));
    at += n;
  }
  take(reader.finish());
  if (content != reader.message().content || reasoning != reader.message().reasoning) __builtin_trap();
  return 0;
}
