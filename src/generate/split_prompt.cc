// Splits rendered chat templates at the places where a prompt has to be cut.
#include <algorithm>
#include <utility>

#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow {
namespace {

// Returns a word that no message contains, by which a place is found again after the template is rendered. Each byte is
// looked at once, whatever the messages contain.
std::string unused_word(const std::vector<ChatMessage>& messages) {
  const std::string word = "<winnow-split";
  std::size_t longest = 0;  // run of '>' after the word
  for (const ChatMessage& message : messages) {
    const std::string& text = message.content;
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
      const std::size_t begin = at + word.size();
      at = std::min(text.find_first_not_of('>', begin), text.size());
      longest = std::max(longest, at - begin);
    }
  }
  return word + std::string(longest + 1, '>');
}

}  // namespace

SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place,
                       const ChatOptions& options, ChatPrompt& prompt) {
  if (place.message >= messages.size() || place.offset > messages[place.message].content.size()) {
    throw Error(ErrorCode::kInvalidArgument, "the place to split the chat at is outside of its messages");
  }
  const std::string word = unused_word(messages);
  std::string& content = messages[place.message].content;
  // Templates trim messages. The word goes after space at a message's beginning, which is then trimmed as without the
  // word.
  constexpr const char* kSpace = " \t\r\n";
  if (content.find_first_not_of(kSpace) >= place.offset) {
    place.offset = std::min(content.find_first_not_of(kSpace, place.offset), content.size());
  }
  content.insert(place.offset, word);
  prompt = model.apply_chat_template(messages, options);
  const std::size_t at = prompt.text.find(word);
  if (at == std::string::npos || prompt.text.find(word, at + 1) != std::string::npos) {
    throw Error(ErrorCode::kUnsupported,
                "the model's chat template does not show a message exactly once: give the prompt without the template");
  }
  prompt.text.erase(at, word.size());
  return {prompt.text.substr(0, at), prompt.text.substr(at)};
}

SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place) {
  ChatPrompt prompt;
  return split_chat(model, std::move(messages), place, {}, prompt);
}

SplitPrompt split_chat(const Model& model, const std::string& system, const std::string& document,
                       const std::string& question) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", document + question});
  const std::size_t last = messages.size() - 1;
  return split_chat(model, std::move(messages), {.message = last, .offset = document.size()});
}

std::string chat_turn(const Model& model, const std::string& message) {
  return split_chat(model, {{"user", "."}, {"assistant", ""}, {"user", message}}, {.message = 1}).after;
}

PromptTokens tokenize(const Model& model, const SplitPrompt& prompt) {
  PromptTokens tokens;
  if (!prompt.before.empty()) tokens.context = model.tokenize(prompt.before, true, true);
  tokens.question = model.tokenize(prompt.after, prompt.before.empty(), true);
  return tokens;
}

}  // namespace winnow
