// JSON that the answers of several dialects have in common.
#pragma once

#include <cstdint>
#include <string>

#include "server/api_error.h"
#include "winnow/batch.h"

namespace winnow::server {

// Returns `prefix` and 32 hexadecimal digits that cannot be guessed.
std::string random_id(const char* prefix);
std::int64_t unix_seconds();

// Returns an event of a stream, with its name if it has one.
std::string sse_text(const Json& json, const char* name = nullptr);

// Returns the log-probability; if it is not finite, -9999, since JSON has no infinity.
double finite(float log_probability);
Json bytes_json(const std::string& bytes);
// Returns a call's arguments as an object; {} if the answer ended before they were complete.
Json arguments_json(const std::string& arguments);

Json usage_json(const BatchResult& result);
// Returns the tokens and times of an answer, and the cache entries kept for it.
Json timings_json(const BatchResult& result);

}  // namespace winnow::server
