#include "server/completion_prompts.h"

#include <algorithm>

#include "base/utf8.h"
#include "server/chat_prompt.h"
#include "server/infill.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostPrompts = 128;

// Returns the prompts, each a text or a list of tokens.
std::vector<Json> prompts_of(const Json& json, const Fields& fields) {
  if (json.is_string() || is_token_list(json)) return {json};
  const auto is_prompt = [](const Json& one) { return one.is_string() || is_token_list(one); };
  if (!json.is_array() || json.empty() || !std::all_of(json.begin(), json.end(), is_prompt)) {
    fields.refuse("prompt", "must be a string, a list of tokens, or a list of these");
  }
  if (json.size() > kMostPrompts) {
    fields.refuse("prompt", "may have " + std::to_string(kMostPrompts) + " prompts at most");
  }
  return json;
}

std::string text_of(const Json& prompt, const Model& model, const Fields& fields) {
  if (prompt.is_string()) return prompt;
  const auto tokens = prompt.get<std::vector<Token>>();
  const int n_vocab = model.info().n_vocab;
  if (std::any_of(tokens.begin(), tokens.end(), [&](Token token) { return token >= n_vocab; })) {
    fields.refuse("prompt", "may only have tokens below " + std::to_string(n_vocab));
  }
  return valid_utf8(model.detokenize(tokens));
}

}  // namespace

CompletionPrompts parse_prompts(const Fields& fields, const Model& model, const std::string& document,
                                std::int32_t n_ctx) {
  const Json* json = fields.find("prompt");
  if (json == nullptr) fields.refuse("prompt", "is missing");
  const std::string suffix = fields.text("suffix").value_or("");
  const bool is_echoed = fields.boolean("echo").value_or(false);
  if (!suffix.empty() && !document.empty()) {
    fields.refuse("suffix", "and 'kv.context' exclude each other: leave one out");
  }
  CompletionPrompts made;
  for (const Json& prompt : prompts_of(*json, fields)) {
    const std::size_t n_bytes = prompt.is_string() ? prompt.get_ref<const std::string&>().size() : 0;
    check_bytes(model, document.size() + suffix.size() + n_bytes, n_ctx, fields.path("prompt"));
    PromptTokens& parts = made.tokens.emplace_back();
    if (is_echoed) made.echoes.push_back(text_of(prompt, model, fields));
    if (!suffix.empty()) {
      parts.question =
          infill_tokens(model, {.prefix = text_of(prompt, model, fields), .suffix = suffix, .files = {}, .begun = ""});
    } else if (prompt.is_string()) {
      parts = tokenize(model, {document, prompt.get<std::string>()});
    } else {
      if (!document.empty()) parts.context = model.tokenize(document, true, true);
      parts.question = prompt.get<std::vector<Token>>();
    }
  }
  return made;
}

}  // namespace winnow::server
