// Errors as OpenAI's clients expect them: a status and {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "winnow/batch.h"
#include "winnow/error.h"

namespace winnow::server {

using Json = nlohmann::ordered_json;  // names come in the order in which they were written

class ApiError : public std::runtime_error {
 public:
  // param: the field that is wrong, or empty.
  ApiError(int the_status, const std::string& message, std::string the_param = "", std::string the_code = "")
      : std::runtime_error(message), status(the_status), param(std::move(the_param)), code(std::move(the_code)) {}

  const int status;
  const std::string param, code;
  // The tokens of a prompt that the context cannot hold (context_full), or as many as it surely has, and the most that
  // it may have.
  std::size_t n_tokens = 0, most_tokens = 0;
  int retry_after_s = 0;  // seconds in the header Retry-After; 0: no such header

  Json body() const;
};

// Return the ApiError for a library error that a client's request has caused, and for any exception: an ApiError is
// itself.
ApiError api_error(ErrorCode code, const std::string& message);
ApiError api_error(const std::exception& error);

// Returns the error of a prompt of n_tokens, or of at least as many, for a context of n_ctx tokens, which must also
// hold the answer's first one. `sentence` tells the client what is too long. Clients know this error by parts of its
// message, which are llama-server's here and Anthropic's in its dialect, and then shorten the conversation.
ApiError context_full(std::size_t n_tokens, std::int32_t n_ctx, const std::string& sentence, const std::string& param);

// Returns the JSON as text. Unlike dump() it cannot throw: bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);

}  // namespace winnow::server
