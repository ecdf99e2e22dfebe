#include "server/kv_json.h"

#include "base/utf8.h"
#include "engine/code_loss_json.h"
#include "engine/promise_json.h"
#include "server/answer_json.h"
#include "server/fields.h"

namespace winnow::server {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json entry_json(const BatchEntry& entry) {
  Json json = {{"id", entry.id},
               {"state", entry.state},
               {"method", entry.method},
               {"budget", text_or_null(entry.budget)},
               {"tokens", entry.n_tokens},
               {"entries_full", entry.cache.entries_full},
               {"entries_kept", entry.cache.entries_kept},
               {"bytes_full", entry.cache.bytes_full},
               {"bytes_kept", entry.cache.bytes_kept},
               {"bytes_in_pages", entry.cache.bytes_in_pages},
               {"bytes_promised", entry.bytes_reserved},
               {"kept", entry.cache.kept},  // [n_layer][n_kv_head]
               {"raised", entry.cache.raised}};
  if (entry.cache.code_loss) json["code_loss"] = code_loss_json<Json>(*entry.cache.code_loss);
  if (entry.cache.promise) json["promise"] = promise_json<Json>(*entry.cache.promise);
  if (entry.kind == BatchEntry::Kind::kContext) {
    json["kind"] = entry.is_context ? "context" : "conversation";
    json["parent"] = entry.parent == 0 ? Json(nullptr) : Json(entry.parent);
    json["users"] = entry.n_users;
    json["hits"] = entry.hits;
  }
  return json;
}

}  // namespace

Json model_json(const Model& model, const RequestDefaults& defaults, const std::string& name) {
  static const std::int64_t kStart = unix_seconds();
  const std::int32_t n_ctx = defaults.context_size(model);
  const ModelInfo& info = model.info();
  const std::vector<int> n_kv_head = info.dimension(&LayerInfo::n_kv_head);
  return {{"id", name},
          {"object", "model"},
          {"created", kStart},
          {"owned_by", "winnow"},
          {"max_model_len", n_ctx},   // as vLLM's clients read it
          {"context_length", n_ctx},  // as OpenRouter's do
          {"meta",
           {{"architecture", info.architecture},
            {"name", info.name},
            {"file_type", info.file_type},
            {"n_params", info.n_parameters},
            {"size", info.bytes},
            {"n_ctx", n_ctx},
            {"n_ctx_train", info.n_ctx_train},
            {"n_vocab", info.n_vocab},
            {"n_embd", info.n_embd},
            {"n_layer", info.n_layer()},
            {"n_kv_head", n_kv_head.size() == 1 ? Json(n_kv_head.front()) : Json(n_kv_head)},
            {"has_chat_template", model.has_chat_template()}}}};
}

Json kv_json(const Batch& batch, const RequestDefaults& defaults) {
  const MemoryStatistics memory = batch.engine()->memory();
  const BatchStatistics now = batch.statistics();
  Json json = {{"bytes_in_use", memory.kv_bytes_in_use},
               {"bytes_resident", memory.kv_bytes_resident},
               {"bytes_limit", memory.kv_bytes_limit},
               {"bytes_promised", now.bytes_reserved},
               {"bytes_contexts", now.context_bytes},
               {"queued", now.n_queued},
               {"reading", now.n_reading},
               {"answering", now.n_answering},
               {"contexts", Json::array()},
               {"requests", Json::array()},
               {"methods", Json::array()},
               {"default",
                {{"evict", defaults.session.eviction.text()},
                 {"budget", defaults.session.budget ? Json(defaults.session.budget->text()) : Json(nullptr)},
                 {"min_tokens", defaults.min_kv_tokens}}}};
  for (const BatchEntry& entry : batch.entries()) {
    json[entry.kind == BatchEntry::Kind::kContext ? "contexts" : "requests"].push_back(entry_json(entry));
  }
  for (const MethodInfo& method : eviction_methods()) {
    const EvictionOptions& options = method.options;
    const bool needs_file = options.scorer == "lu-kv" || options.heads == "lu-kv" || options.heads == "headkv";
    if (!needs_file) json["methods"].push_back({{"name", method.name}, {"summary", method.summary}});
  }
  return json;
}

Json tokenize_json(const Model& model, const Json& body) {
  const Fields fields(body);
  const std::optional<std::string> content = fields.text("content");
  if (!content) fields.refuse("content", "is missing");
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // some seconds of work, whatever is in it
  if (content->size() > kMostBytes) {
    fields.refuse("content", "has " + std::to_string(content->size()) + " bytes, more than " +
                                 std::to_string(kMostBytes) + ": send it in parts");
  }
  const std::vector<Token> tokens = model.tokenize(*content, fields.boolean("add_special").value_or(false),
                                                   fields.boolean("parse_special").value_or(true));
  if (!fields.boolean("with_pieces").value_or(false)) return {{"tokens", tokens}};
  Json pieces = Json::array();
  for (const Token token : tokens) {
    const std::string text = model.token_text(token, true);
    // As in llama-server, a token that is no text by itself is given as its bytes.
    pieces.push_back({{"id", token}, {"piece", find_invalid_utf8(text) ? bytes_json(text) : Json(text)}});
  }
  return {{"tokens", std::move(pieces)}};
}

Json detokenize_json(const Model& model, const Json& body) {
  const Fields fields(body);
  const Json* list = fields.find("tokens");
  if (list == nullptr || !list->is_array()) fields.refuse("tokens", "must be a list of tokens");
  std::vector<Token> tokens;
  for (const Json& token : *list) {
    if (!token.is_number_integer() || token < 0 || token >= model.info().n_vocab) {
      fields.refuse("tokens", "must be whole numbers below " + std::to_string(model.info().n_vocab));
    }
    tokens.push_back(token);
  }
  return {{"content", valid_utf8(model.detokenize(tokens))}};
}

}  // namespace winnow::server
