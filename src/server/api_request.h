// A request's JSON as what the batch is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/fields.h"
#include "winnow/batch.h"
#include "winnow/chat.h"

namespace winnow::server {

// What holds for requests that say nothing else.
struct RequestDefaults {
  SessionOptions session;  // types and context size hold for all of them
  SamplingOptions sampling;
  std::int32_t max_tokens = 1024;
  std::int32_t min_kv_tokens = 256;  // prompts with fewer are kept whole, unless they name a method or budget
  int n_parallel = 8;                // most answers of one request
  std::optional<Pooling> pooling;    // of embeddings; default: the model's

  // Returns the tokens that a request may have with its answer: those asked for, or else the model's.
  std::int32_t context_size(const Model& model) const;
};

enum class Endpoint { kChat, kCompletion };

// What parse_request reads: the fields of OpenAI's chats and completions, which other dialects are translated to.
struct RequestBody {
  RequestBody() = default;
  // Of a client that speaks OpenAI's dialect. Throws ApiError(400).
  explicit RequestBody(Json body);

  // Adds a function to "tools" that is the client's tool number `i`.
  void add_tool(std::size_t i, Json function);
  // Removes the functions whose names are not kept.
  void keep_tools(const std::function<bool(const Json& name)>& is_kept);

  Json fields = Json::object();
  FieldNames names;                   // the client's
  std::vector<std::string> warnings;  // for the log: what a dialect has left out
};

// A schema that stands somewhere else than OpenAI has it (where clients of llama-server, vLLM and others put it)
// becomes the "response_format". Throws ApiError(400), also for two.
void take_schema(RequestBody& body);

struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  BatchRequest batch;
  std::vector<BatchRequest> more;  // other prompts of the same request; their answers are numbered on
  std::vector<std::string> stops;
  std::size_t n_own_stops = 0;               // that the request named; the rest is the template's
  std::shared_ptr<const ChatFormat> format;  // of a chat's answer; null: plain text
  std::vector<Token> shown_tokens;           // special ones whose text belongs to an answer, ascending
  std::string model;                         // the name that it asked for, repeated in the answer; may be empty
  std::vector<std::string> echoes;           // of a completion with "echo": each prompt's text
  int n_returned = 1;                        // answers to a prompt that the client gets; the rest is not as good
  bool returns_logprobs = true;              // where there are any
  bool is_streamed = false;
  bool wants_usage = false;  // at the end of the stream
  // llama-server's "t_max_predict_ms", for editors: an answer of more than one line ends so long after its first token.
  double predict_s = 0;               // 0: it does not
  int n_indent = 0;                   // llama-server's, of an IndentLimit
  bool wants_heads = false;           // the entries of each layer and head, in the timings
  std::vector<std::string> warnings;  // for the log: what was passed over

  std::size_t n_prompt_tokens() const { return batch.context.size() + batch.prompt.size(); }  // of the first prompt
  int n_answers() const { return batch.n_answers * static_cast<int>(1 + more.size()); }
};

// Throws ApiError for a request that is not understood or asks for what there is not, and
// winnow::Error.
ApiRequest parse_request(Endpoint endpoint, const RequestBody& body, const Model& model,
                         const RequestDefaults& defaults);

}  // namespace winnow::server
