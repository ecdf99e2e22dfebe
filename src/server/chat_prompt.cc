#include "server/chat_prompt.h"

#include <algorithm>

#include "winnow/error.h"

namespace winnow::server {
namespace {

// A word that no message has, to find a place of the template again after rendering.
std::string unused_word(const std::vector<ChatMessage>& messages) {
  std::string word = "<winnow-split>";
  const auto occurs = [&](const ChatMessage& message) { return message.content.find(word) != std::string::npos; };
  while (std::any_of(messages.begin(), messages.end(), occurs)) word += '>';
  return word;
}

PromptParts tokens_of(const Model& model, const std::string& before, const std::string& after) {
  PromptParts parts;
  if (!before.empty()) parts.context = model.tokenize(before, true, true);
  parts.rest = model.tokenize(after, before.empty(), true);
  return parts;
}

}  // namespace

PromptParts chat_parts(const Model& model, std::vector<ChatMessage> messages,
                       const std::optional<std::string>& document) {
  const auto is_user = [](const ChatMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  if (first == messages.end()) {
    if (document) throw Error(ErrorCode::kInvalidArgument, "a document needs a user message that asks about it");
    return tokens_of(model, "", model.apply_chat_template(messages, true));
  }
  std::string word;
  if (document) {
    std::vector<ChatMessage> with_document = messages;
    with_document.push_back({"user", *document});
    word = unused_word(with_document);
    first->content = *document + "\n\n" + word + first->content;
  } else {
    word = unused_word(messages);
    const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
    last->content = word + last->content;
  }
  std::string prompt = model.apply_chat_template(messages, true);
  const std::size_t place = prompt.find(word);
  if (place == std::string::npos || prompt.find(word, place + 1) != std::string::npos) {
    throw Error(ErrorCode::kUnsupported,
                "the model's chat template does not show a message exactly once: use /v1/completions");
  }
  return tokens_of(model, prompt.substr(0, place), prompt.substr(place + word.size()));
}

PromptParts text_parts(const Model& model, const std::string& document, const std::string& prompt) {
  return tokens_of(model, document, prompt);
}

}  // namespace winnow::server
