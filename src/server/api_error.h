// Errors as OpenAI's clients expect them: a status and {"error": {"message", "type", "param", "code"}}.
#pragma once

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
  int retry_after_s = 0;  // seconds in the header Retry-After; 0: no such header

  Json body() const;
};

// Return the ApiError for a library error that a client's request has caused, and for any exception: an ApiError is
// itself.
ApiError api_error(ErrorCode code, const std::string& message);
ApiError api_error(const std::exception& error);

// Returns the JSON as text. Unlike dump() it cannot throw: bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);

}  // namespace winnow::server
