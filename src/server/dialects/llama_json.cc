#include "server/dialects/llama_json.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "model/model_impl.h"
#include "server/chat_fields.h"
#include "server/chat_prompt.h"
#include "winnow/version.h"

namespace winnow::server {

Json props_json(const Model& model, const RequestDefaults& defaults, const std::string& model_name) {
  const SamplingOptions& sampling = defaults.sampling;
  // Returns the text of the model's own token, even if prompts do not begin with it.
  const auto special_text = [&](SpecialToken which) {
    const std::optional<Token> token = model.special_token(which);
    return token ? valid_utf8(model.token_text(*token, true)) : "";
  };
  return {{"default_generation_settings",
           {{"n_ctx", defaults.context_size(model)},
            {"params",
             {{"n_predict", defaults.max_tokens},
              {"temperature", sampling.temperature},
              {"top_k", sampling.top_k},
              {"top_p", sampling.top_p},
              {"min_p", sampling.min_p},
              {"typical_p", sampling.typical_p},
              {"repeat_last_n", sampling.repeat_last_n},
              {"repeat_penalty", sampling.repeat_penalty},
              {"presence_penalty", sampling.presence_penalty},
              {"frequency_penalty", sampling.frequency_penalty},
              {"mirostat", sampling.mirostat},
              {"samplers", sampling.samplers}}}}},
          {"total_slots", defaults.n_parallel},
          {"model_alias", model_name},
          {"model_path", model_name},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"bos_token", special_text(SpecialToken::kBegin)},
          {"eos_token", special_text(SpecialToken::kEnd)},
          {"chat_template", valid_utf8(model.impl().chat_template.source())},
          {"has_chat_template", model.has_chat_template()},
          {"build_info", std::string("winnow-") + kVersion}};
}

Json slots_json(const Batch& batch, const RequestDefaults& defaults) {
  const std::int32_t n_ctx = defaults.context_size(*batch.engine()->model());
  Json slots = Json::array();
  const auto add = [&](bool is_processing) -> Json& {
    slots.push_back({{"id", slots.size()}, {"n_ctx", n_ctx}, {"speculative", false}, {"is_processing", is_processing}});
    return slots.back();
  };
  for (const BatchEntry& entry : batch.entries()) {
    if (entry.kind != BatchEntry::Kind::kRequest) continue;
    Json& slot = add(true);
    slot["id_task"] = entry.id;
    slot["state"] = entry.state;
    slot["n_tokens"] = entry.n_tokens;
  }
  while (slots.size() < static_cast<std::size_t>(defaults.n_parallel)) add(false);
  return slots;
}

Json template_json(const Model& model, Json body, const RequestDefaults& defaults) {
  const RequestBody parsed(std::move(body));
  const ChatFields chat = parse_chat(Fields(parsed.fields), false);
  std::size_t n_bytes = chat.messages.size();
  for (const ChatMessage& message : chat.messages) n_bytes += message.content.size();
  check_bytes(model, n_bytes, defaults.context_size(model), "messages");
  return {{"prompt", model.apply_chat_template(chat.messages, chat.options).text}};
}

}  // namespace winnow::server
