// Translates a request's JSON to requests of the batch.
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

// Settings for requests that do not choose their own.
struct RequestDefaults {
  SessionOptions session;  // its types and context size hold for all requests
  SamplingOptions sampling;
  std::int32_t max_tokens = 1024;
  std::int32_t min_kv_tokens = 256;  // prompts with fewer are kept whole, unless they name a method or budget
  int n_parallel = 8;                // most answers of one request
  std::optional<Pooling> pooling;    // pooling of embeddings; nullopt: the model's

  // Returns the most tokens of a request with its answer: session.n_ctx if it is set, or else the model's n_ctx_train.
  std::int32_t context_size(const Model& model) const;
};

enum class Endpoint { kChat, kCompletion };

// The input of parse_request: the fields of OpenAI's chats and completions, which other dialects are translated to.
struct RequestBody {
  RequestBody() = default;
  // Takes the body of a client that speaks OpenAI's dialect. Throws ApiError(400).
  explicit RequestBody(Json body);

  // Adds a function to "tools" that is the client's tool number `i`.
  void add_tool(std::size_t i, Json function);
  // Removes the functions for whose names is_kept returns false.
  void keep_tools(const std::function<bool(const Json& name)>& is_kept);

  Json fields = Json::object();
  FieldNames names;                   // the client's names of the fields
  std::vector<std::string> warnings;  // for the log: parts that a dialect has left out
};

// Makes a JSON Schema that stands somewhere else than in OpenAI's API (where clients of llama-server, vLLM and others
// put it) the "response_format". Throws ApiError(400), also if there are two.
void take_schema(RequestBody& body);

// A request that has been parsed.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  BatchRequest batch;
  std::vector<BatchRequest> more;  // other prompts of the same request; the numbers of their answers follow on
  std::string prompt_field;        // the client's name of the field with the prompts
  std::vector<std::string> stops;
  std::size_t n_own_stops = 0;               // stops that the request named; the rest is the template's
  std::shared_ptr<const ChatFormat> format;  // of a chat's answer; null: plain text
  std::vector<Token> shown_tokens;           // special tokens whose text belongs to an answer, ascending
  std::string model;                         // the name that it asked for, repeated in the answer; may be empty
  std::vector<std::string> echoes;           // of a completion with "echo": each prompt's text
  int n_returned = 1;                        // answers to a prompt that are returned: the likeliest ones (best_of)
  bool returns_logprobs = true;              // if there are any
  bool is_streamed = false;
  bool wants_usage = false;  // at the end of the stream
  // llama-server's "t_max_predict_ms", for editors: an answer of several lines ends this long after its first token.
  double predict_s = 0;               // 0: no limit
  int n_indent = 0;                   // llama-server's "n_indent" (IndentLimit)
  bool wants_heads = false;           // returns the entries of each layer and head with the timings
  std::vector<std::string> warnings;  // for the log: parts that were passed over

  std::size_t n_prompt_tokens() const { return batch.context.size() + batch.prompt.size(); }  // of the first prompt
  int n_answers() const { return batch.n_answers * static_cast<int>(1 + more.size()); }
};

// Returns the parsed request. Throws ApiError if it is not understood or asks for something unsupported, and
// winnow::Error.
ApiRequest parse_request(Endpoint endpoint, const RequestBody& body, const Model& model,
                         const RequestDefaults& defaults);

}  // namespace winnow::server
