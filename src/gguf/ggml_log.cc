#include "gguf/ggml_log.h"

#include <ggml.h>
#include <llama.h>

#include <cstddef>
#include <mutex>
#include <string_view>
#include <utility>

namespace winnow {
namespace {

// The last bytes are kept: the log of a library must not grow a long-lived thread without bound.
constexpr std::size_t kMostBytes = 4096;

struct Messages {
  std::string errors;
  std::string warnings;
  std::string* unfinished = nullptr;  // where GGML_LOG_LEVEL_CONT continues; null if the line is not kept
};

Messages& messages() {
  thread_local Messages of_this_thread;
  return of_this_thread;
}

void keep_message(ggml_log_level level, const char* text, void* /*user_data*/) {
  try {
    Messages& kept = messages();
    if (level == GGML_LOG_LEVEL_ERROR) {
      kept.unfinished = &kept.errors;
    } else if (level == GGML_LOG_LEVEL_WARN) {
      kept.unfinished = &kept.warnings;
    } else if (level != GGML_LOG_LEVEL_CONT) {
      kept.unfinished = nullptr;
    }
    if (kept.unfinished == nullptr) return;
    std::string& lines = *kept.unfinished;
    lines += text;
    if (lines.size() > kMostBytes) lines.erase(0, lines.size() - kMostBytes);
  } catch (...) {
    // The callers are C: losing a message for lack of memory is better than ending the process.
  }
}

}  // namespace

void silence_ggml() {
  static std::once_flag once;
  std::call_once(once, [] {
    ggml_log_set(keep_message, nullptr);
    llama_log_set(keep_message, nullptr);
  });
}

std::string take_ggml_errors() {
  Messages taken = std::exchange(messages(), Messages{});
  return taken.errors.empty() ? std::move(taken.warnings) : std::move(taken.errors);
}

}  // namespace winnow
