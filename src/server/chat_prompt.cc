#include "server/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "winnow/error.h"

namespace winnow::server {

PromptTokens chat_tokens(const Model& model, std::vector<ChatMessage> messages,
                         const std::optional<std::string>& document) {
  const auto is_user = [](const ChatMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  if (first == messages.end()) {
    if (document) throw Error(ErrorCode::kInvalidArgument, "a document needs a user message that asks about it");
    return tokenize(model, {"", model.apply_chat_template(messages, true)});
  }
  ChatPlace place;
  if (document) {
    const std::string before = *document + "\n\n";
    first->content.insert(0, before);
    place = {.message = static_cast<std::size_t>(first - messages.begin()), .offset = before.size()};
  } else {
    const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
    place = {.message = static_cast<std::size_t>(messages.rend() - last) - 1};
  }
  return tokenize(model, split_chat(model, std::move(messages), place));
}

}  // namespace winnow::server
