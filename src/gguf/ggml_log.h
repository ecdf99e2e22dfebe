// ggml and libllama write to stderr unless told otherwise; winnow turns their messages into the text of its errors.
#pragma once

#include <string>

namespace winnow {

// Takes over the log callbacks of ggml and libllama, once per process; later calls do nothing, so that a program may
// install its own callbacks afterwards. Thread-safe.
void silence_ggml();

// What ggml and libllama reported on this thread since the last call, a line each, and forgets it: the errors, or the
// warnings if there were no errors.
std::string take_ggml_errors();

}  // namespace winnow
