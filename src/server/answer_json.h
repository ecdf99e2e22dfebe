// What the answers of several dialects have in common.
#pragma once

#include <cstdint>
#include <string>

#include "server/api_error.h"
#include "winnow/batch.h"

namespace winnow::server {

// `prefix` and 32 hexadecimal digits that cannot be guessed.
std::string random_id(const char* prefix);
std::int64_t unix_seconds();

// An event of a stream, with its name where it has one.
std::string sse_text(const Json& json, const char* name = nullptr);

// JSON has no infinity: a token that cannot be is as good as impossible.
double finite(float log_probability);
Json bytes_json(const std::string& bytes);
// A call's arguments as an object; {} for what the end of the tokens cut off.
Json arguments_json(const std::string& arguments);

Json usage_json(const BatchResult& result);
// What the answer took, and what was kept for it.
Json timings_json(const BatchResult& result);

}  // namespace winnow::server
