#include "server/api_error.h"

#include <algorithm>
#include <new>

namespace winnow::server {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429 || status == 503) return "overloaded_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

constexpr const char* kTooLong = "the request exceeds the available context size";
constexpr const char* kTooLongCode = "context_length_exceeded";

}  // namespace

Json ApiError::body() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {
      {"error", {{"message", what()}, {"type", type_of(status)}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

ApiError api_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kContextFull:
      return ApiError(400, std::string(kTooLong) + ": " + message, "", kTooLongCode);
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
      return ApiError(400, message);
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kCancelled:
      return ApiError(503, message);
    case ErrorCode::kBadFile:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return ApiError(500, message);
}

ApiError api_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const ApiError*>(&error)) return *own;
  if (const auto* full = dynamic_cast<const QueueFull*>(&error)) {
    ApiError busy(503, error.what(), "", "queue_full");
    busy.retry_after_s = full->retry_after_s;
    return busy;
  }
  if (const auto* known = dynamic_cast<const Error*>(&error)) return api_error(known->code(), known->what());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ApiError(503, "there is no memory left for this request");
  }
  return ApiError(500, error.what());
}

ApiError context_full(std::size_t n_tokens, std::int32_t n_ctx, const std::string& sentence, const std::string& param) {
  ApiError error(400, std::string(kTooLong) + ": " + sentence, param, kTooLongCode);
  error.most_tokens = static_cast<std::size_t>(std::max(n_ctx - 1, 0));
  error.n_tokens = std::max(n_tokens, error.most_tokens + 1);
  return error;
}

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace winnow::server
