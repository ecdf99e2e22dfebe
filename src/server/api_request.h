// A request's JSON as what the batch is asked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
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
};

enum class Endpoint { kChat, kCompletion };

struct ApiRequest {
  Endpoint endpoint = Endpoint::kChat;
  BatchRequest batch;
  std::vector<std::string> stops;
  std::shared_ptr<const ChatFormat> format;  // of a chat's answer; null: plain text
  std::vector<Token> shown_tokens;           // special ones whose text belongs to an answer, ascending
  std::string model;                         // the name that it asked for, repeated in the answer; may be empty
  bool is_streamed = false;
  bool wants_usage = false;  // at the end of the stream
  bool wants_heads = false;  // the entries of each layer and head, in the timings
};

// `text` is the body. Throws ApiError for a request that is not understood or asks for what there is not, and
// winnow::Error.
ApiRequest parse_request(Endpoint endpoint, const std::string& text, const Model& model,
                         const RequestDefaults& defaults);

}  // namespace winnow::server
