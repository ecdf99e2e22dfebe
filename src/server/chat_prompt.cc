#include "server/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "model/model_impl.h"
#include "winnow/error.h"

namespace winnow::server {

// No token has more bytes than the longest one.
void check_bytes(const Model& model, std::size_t n_bytes, std::int32_t n_ctx) {
  const std::size_t longest = model.impl().tokenizer.pieces().longest;
  if (n_bytes / std::max<std::size_t>(longest, 1) < static_cast<std::size_t>(n_ctx)) return;
  throw Error(ErrorCode::kContextFull, "the prompt has " + std::to_string(n_bytes) + " bytes, which cannot fit the " +
                                           std::to_string(n_ctx) + " tokens of the context: shorten it");
}

PromptTokens chat_tokens(const Model& model, std::vector<ChatMessage> messages,
                         const std::optional<std::string>& document, std::int32_t n_ctx) {
  // A template puts a token or more around each message.
  if (messages.size() > static_cast<std::size_t>(n_ctx)) {
    throw Error(ErrorCode::kContextFull, "the chat has " + std::to_string(messages.size()) +
                                             " messages and the context " + std::to_string(n_ctx) +
                                             " tokens: leave earlier messages out");
  }
  std::size_t n_bytes = document ? document->size() : 0;
  for (const ChatMessage& message : messages) n_bytes += message.content.size();
  check_bytes(model, n_bytes, n_ctx);
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
