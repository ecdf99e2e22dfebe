#include "server/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "model/model_impl.h"
#include "winnow/error.h"

namespace winnow::server {

// A token has at most as many bytes as the longest one, which gives the fewest tokens of a text.
void check_bytes(const Model& model, std::size_t n_bytes, std::int32_t n_ctx, const std::string& field) {
  const std::size_t longest = model.impl().tokenizer.pieces().longest;
  const std::size_t n_tokens = n_bytes / std::max<std::size_t>(longest, 1);
  if (n_tokens < static_cast<std::size_t>(n_ctx)) return;
  throw context_full(n_tokens, n_ctx,
                     "the prompt has " + std::to_string(n_bytes) + " bytes, too many for the context of " +
                         std::to_string(n_ctx) + " tokens: shorten it",
                     field);
}

void check_tokens(const ApiRequest& request, std::int32_t n_ctx) {
  const auto check = [&](const BatchRequest& one) {
    const std::size_t n_tokens = one.context.size() + one.prompt.size();
    if (n_tokens < static_cast<std::size_t>(n_ctx)) return;
    throw context_full(n_tokens, n_ctx,
                       "the prompt has " + std::to_string(n_tokens) + " tokens, but the context of " +
                           std::to_string(n_ctx) + " must also hold the answer's first token: shorten the prompt",
                       request.prompt_field);
  };
  check(request.batch);
  for (const BatchRequest& one : request.more) check(one);
}

namespace {

void take_format(const Model& model, ChatPrompt prompt, ApiRequest& request) {
  if (!prompt.grammar.empty()) {
    request.batch.sampling.grammar = std::move(prompt.grammar);
    request.batch.sampling.grammar_start = std::move(prompt.grammar_start);
  }
  request.format = std::move(prompt.format);
  request.warnings.insert(request.warnings.end(), prompt.warnings.begin(), prompt.warnings.end());
  request.stops.insert(request.stops.end(), prompt.stops.begin(), prompt.stops.end());
  if (request.format == nullptr) return;
  for (const std::string& text : prompt.shown_tokens) {
    const std::vector<Token> tokens = model.tokenize(text, false, true);
    if (tokens.size() == 1) request.shown_tokens.push_back(tokens.front());
  }
  std::sort(request.shown_tokens.begin(), request.shown_tokens.end());
}

}  // namespace

PromptTokens chat_tokens(const Model& model, ChatFields chat, const std::optional<std::string>& document,
                         std::int32_t n_ctx, ApiRequest& request) {
  std::vector<ChatMessage>& messages = chat.messages;
  // A template puts a token or more around each message.
  if (messages.size() > static_cast<std::size_t>(n_ctx)) {
    throw context_full(messages.size(), n_ctx,
                       "the chat has " + std::to_string(messages.size()) + " messages, too many for the context of " +
                           std::to_string(n_ctx) + " tokens: leave earlier messages out",
                       request.prompt_field);
  }
  std::size_t n_bytes = document ? document->size() : 0;
  for (const ChatMessage& message : messages) n_bytes += message.content.size();
  check_bytes(model, n_bytes, n_ctx, request.prompt_field);
  const auto is_user = [](const ChatMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  ChatPrompt prompt;
  SplitPrompt split;
  if (first == messages.end()) {
    if (document) throw Error(ErrorCode::kInvalidArgument, "a document needs a user message that asks about it");
    prompt = model.apply_chat_template(messages, chat.options);
    split.after = prompt.text;
  } else {
    ChatPlace place;
    if (document) {
      const std::string before = *document + "\n\n";
      first->content.insert(0, before);
      place = {.message = static_cast<std::size_t>(first - messages.begin()), .offset = before.size()};
    } else {
      const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
      place = {.message = static_cast<std::size_t>(messages.rend() - last) - 1};
    }
    split = split_chat(model, std::move(messages), place, chat.options, prompt);
  }
  // Thoughts, calls and tools are counted here only, since a template may leave them out.
  check_bytes(model, split.before.size() + split.after.size(), n_ctx, request.prompt_field);
  take_format(model, std::move(prompt), request);
  return tokenize(model, split);
}

}  // namespace winnow::server
