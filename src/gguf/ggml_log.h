// The log of ggml and libllama, which write to stderr by default. winnow puts their messages into its errors.
#pragma once

#include <string>

namespace winnow {

// Takes over the log callbacks of ggml and libllama, once per process; later calls do nothing, so that a program may
// install its own callbacks afterwards. Thread-safe.
void silence_ggml();

// Returns the messages of ggml and libllama on this thread since the last call, a line each, and forgets them: the
// errors, or the warnings if there were no errors.
std::string take_ggml_errors();

}  // namespace winnow
