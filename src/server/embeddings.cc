#include "server/embeddings.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/base64.h"
#include "base/stopwatch.h"
#include "server/answering.h"
#include "server/chat_prompt.h"
#include "server/submissions.h"
#include "winnow/embedding.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostInputs = 2048;  // as OpenAI's
// One input is computed while the next waits; more would only delay other requests.
constexpr std::size_t kAtATime = 2;

std::vector<Token> tokens_of(const Json& input, const std::string& name, const Model& model, std::int32_t n_ctx) {
  if (!input.is_string()) return input.get<std::vector<Token>>();
  const auto& text = input.get_ref<const std::string&>();
  if (text.empty()) throw ApiError(400, "'" + name + "' has an empty text, which has no embedding", name);
  check_bytes(model, text.size(), n_ctx, name);
  return model.tokenize(text, true, true);
}

std::vector<Json> inputs_of(const Fields& fields, const std::string& name, bool takes_tokens) {
  const Json* json = fields.find(name);
  if (json == nullptr) fields.refuse(name, "is missing");
  const auto is_input = [&](const Json& one) { return one.is_string() || (takes_tokens && is_token_list(one)); };
  if (is_input(*json)) return {*json};
  if (!json->is_array() || json->empty() || !std::all_of(json->begin(), json->end(), is_input)) {
    fields.refuse(name, takes_tokens ? "must be a string, a list of tokens, or a list of these"
                                     : "must be a string or a list of strings");
  }
  if (json->size() > kMostInputs) {
    fields.refuse(name, "may have " + std::to_string(kMostInputs) + " texts at most");
  }
  return *json;
}

// A shorter vector than the model's has a meaning only for models that were trained for it, which a file does not say.
void check_dimensions(const Fields& fields, const Model& model) {
  const auto dimensions = fields.integer("dimensions", 1, INT32_MAX);
  if (dimensions && *dimensions != model.info().n_embd) {
    fields.refuse("dimensions", "must be " + std::to_string(model.info().n_embd) + ", the model's own, or left out");
  }
}

void check_length(const std::string& name, std::size_t i, std::size_t n, std::int32_t n_ctx) {
  if (n <= static_cast<std::size_t>(n_ctx)) return;
  throw context_full(n, n_ctx,
                     "text " + std::to_string(i) + " of '" + name + "' has " + std::to_string(n) +
                         " tokens, more than the context of " + std::to_string(n_ctx) +
                         ": shorten it, or embed it in parts",
                     name);
}

// The results that the batch's thread leaves for the thread that waits.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::pair<std::size_t, BatchResult>> results;
};

// The inputs of a request on their way through the batch.
class EmbeddingRun {
 public:
  EmbeddingRun(Batch& batch, const EmbeddingsRequest& request, const RequestDefaults& defaults)
      : request_(request),
        pooling_(defaults.pooling.value_or(default_pooling(*batch.engine()->model()))),
        n_ctx_(defaults.session.n_ctx),
        submissions_(batch) {}

  Embeddings finish(std::chrono::steady_clock::time_point deadline) {
    Embeddings made;
    made.rows.resize(request_.inputs.size());
    std::size_t n_done = 0;
    while (n_done < request_.inputs.size()) {
      const std::size_t most = std::min(request_.inputs.size(), n_done + kAtATime);
      while (submissions_.size() < most && submit_next()) {
      }
      const auto arrived = next();
      check_still_wanted(deadline, arrived.has_value());
      if (!arrived) continue;
      const auto& [i, result] = *arrived;
      if (has_failed(result)) throw error_of(result);
      made.rows[i] = result.embedding;
      if (request_.is_normalised) normalise(made.rows[i]);
      made.n_tokens += result.prompt_tokens;
      ++n_done;
    }
    return made;
  }

 private:
  // Submits the next input. Returns and throws what Submissions::submit does.
  bool submit_next() {
    const std::size_t number = submissions_.size();
    BatchRequest one;
    one.embedding = pooling_;
    one.prompt = request_.inputs[number];
    one.session.n_ctx = n_ctx_;
    BatchCallbacks callbacks;
    callbacks.on_done = [mailbox = mailbox_, number](const BatchResult& result) {
      const std::lock_guard lock(mailbox->mutex);
      mailbox->results.emplace_back(number, result);
      mailbox->arrived.notify_one();
    };
    return submissions_.submit(std::move(one), std::move(callbacks));
  }

  std::optional<std::pair<std::size_t, BatchResult>> next() {
    std::unique_lock lock(mailbox_->mutex);
    mailbox_->arrived.wait_for(lock, kLook, [&] { return !mailbox_->results.empty(); });
    if (mailbox_->results.empty()) return std::nullopt;
    auto first = std::move(mailbox_->results.front());
    mailbox_->results.pop_front();
    return first;
  }

  const EmbeddingsRequest& request_;
  const Pooling pooling_;
  const std::int32_t n_ctx_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  Submissions submissions_;
};

Json row_json(const std::vector<float>& row, bool is_base64) {
  if (!is_base64) return row;
  std::vector<std::uint8_t> bytes(row.size() * sizeof(float));
  std::memcpy(bytes.data(), row.data(), bytes.size());
  return base64(bytes);
}

}  // namespace

EmbeddingsRequest parse_openai_embeddings(const Json& body, const Model& model, const RequestDefaults& defaults) {
  const Fields fields(body);
  EmbeddingsRequest request;
  const std::string encoding = fields.text("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64") fields.refuse("encoding_format", "must be float or base64");
  request.is_base64 = encoding == "base64";
  check_dimensions(fields, model);
  const std::int32_t n_ctx = defaults.context_size(model);
  for (const Json& input : inputs_of(fields, "input", true)) {
    request.inputs.push_back(tokens_of(input, "input", model, n_ctx));
    check_length("input", request.inputs.size() - 1, request.inputs.back().size(), n_ctx);
  }
  return request;
}

EmbeddingsRequest parse_ollama_embed(const Json& body, const Model& model, const RequestDefaults& defaults) {
  const Fields fields(body);
  check_dimensions(fields, model);
  const bool is_cut_off = fields.boolean("truncate").value_or(true);
  const std::int32_t n_ctx = defaults.context_size(model);
  EmbeddingsRequest request;
  // As in ollama, no text gives no vectors. Programs send this to check whether the model is there.
  const Json* given = fields.find("input");
  if (given == nullptr || *given == "" || *given == Json::array()) return request;
  for (const Json& input : inputs_of(fields, "input", false)) {
    std::vector<Token> tokens = tokens_of(input, "input", model, n_ctx);
    if (is_cut_off) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(n_ctx)));
    request.inputs.push_back(std::move(tokens));
    check_length("input", request.inputs.size() - 1, request.inputs.back().size(), n_ctx);
  }
  return request;
}

EmbeddingsRequest parse_ollama_embeddings(const Json& body, const Model& model, const RequestDefaults& defaults) {
  const Fields fields(body);
  const std::optional<std::string> prompt = fields.text("prompt");
  if (!prompt) fields.refuse("prompt", "is missing");
  if (prompt->empty()) return EmbeddingsRequest();
  const std::int32_t n_ctx = defaults.context_size(model);
  EmbeddingsRequest request;
  request.is_normalised = false;
  request.inputs.push_back(tokens_of(*prompt, "prompt", model, n_ctx));
  check_length("prompt", 0, request.inputs[0].size(), n_ctx);
  return request;
}

Embeddings compute_embeddings(Batch& batch, const EmbeddingsRequest& request, const RequestDefaults& defaults,
                              std::chrono::steady_clock::time_point deadline) {
  const Stopwatch watch;
  Embeddings made = EmbeddingRun(batch, request, defaults).finish(deadline);
  made.seconds = watch.seconds();
  return made;
}

Json openai_embeddings(const EmbeddingsRequest& request, const Embeddings& made, const std::string& model_name) {
  Json data = Json::array();
  for (const std::vector<float>& row : made.rows) {
    data.push_back({{"object", "embedding"}, {"index", data.size()}, {"embedding", row_json(row, request.is_base64)}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model_name},
          {"usage", {{"prompt_tokens", made.n_tokens}, {"total_tokens", made.n_tokens}}}};
}

Json ollama_embed(const Embeddings& made, const std::string& model_name) {
  return {{"model", model_name},
          {"embeddings", made.rows},
          {"total_duration", static_cast<std::int64_t>(made.seconds * 1e9)},
          {"load_duration", 0},
          {"prompt_eval_count", made.n_tokens}};
}

Json ollama_embeddings(const Embeddings& made) {
  return {{"embedding", made.rows.empty() ? std::vector<float>() : made.rows.front()}};
}

}  // namespace winnow::server
