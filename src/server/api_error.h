// Errors as OpenAI's clients expect them: a status and {"error": {"message", "type", "param", "code"}}.
#pragma once

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
  int retry_after_s = 0;  // 0: no such header

  Json body() const;
};

// The status that a library error has where a client's request caused it.
ApiError api_error(ErrorCode code, const std::string& message);
ApiError api_error(const Error& error);

// dump() that cannot throw: what is not UTF-8 becomes U+FFFD.
std::string to_text(const Json& json);

}  // namespace winnow::server
