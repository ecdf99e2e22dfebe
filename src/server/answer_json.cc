#include "server/answer_json.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>

#include "engine/promise_json.h"

namespace winnow::server {
namespace {

double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

}  // namespace

std::string random_id(const char* prefix) {
  // An id must not be guessable from others, since those of /v1/responses give access to conversations.
  std::random_device random;
  std::string id = prefix;
  for (int i = 0; i < 4; ++i) {
    char text[16];
    std::snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(random()));
    id += text;
  }
  return id;
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string sse_text(const Json& json, const char* name) {
  return (name == nullptr ? "" : "event: " + std::string(name) + "\n") + "data: " + to_text(json) + "\n\n";
}

double finite(float log_probability) { return std::isfinite(log_probability) ? log_probability : -9999.0; }

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Json arguments_json(const std::string& arguments) {
  Json json = Json::parse(arguments, nullptr, false);
  return json.is_object() ? json : Json::object();
}

Json usage_json(const BatchResult& result) {
  return {{"prompt_tokens", result.prompt_tokens},
          {"completion_tokens", result.answer_tokens},
          {"total_tokens", result.prompt_tokens + result.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", result.cached_tokens}}}};
}

Json timings_json(const BatchResult& result) {
  const int n_read = result.prompt_tokens - result.cached_tokens;
  const SessionStatistics& cache = result.cache;
  Json json = {{"queue_ms", result.queue_s * 1e3},
               {"cache_n", result.cached_tokens},
               {"prompt_n", n_read},
               {"prompt_ms", result.prefill_s * 1e3},
               {"prompt_per_second", rate(n_read, result.prefill_s)},
               {"predicted_n", result.answer_tokens},
               {"predicted_ms", result.decode_s * 1e3},
               {"predicted_per_second", rate(result.answer_tokens, result.decode_s)},
               {"kv",
                {{"method", result.method},
                 {"budget", result.budget.empty() ? Json(nullptr) : Json(result.budget)},
                 {"entries_full", cache.entries_full},
                 {"entries_kept", cache.entries_kept},
                 {"bytes_full", cache.bytes_full},
                 {"bytes_kept", cache.bytes_kept}}}};
  if (cache.promise) json["kv"]["promise"] = promise_json<Json>(*cache.promise);
  return json;
}

}  // namespace winnow::server
