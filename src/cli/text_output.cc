#include "cli/text_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/atomic_file.h"
#include "winnow/error.h"

namespace winnow::cli {
bool write_all(int descriptor, std::string_view bytes, const std::string& name) {
  const int reason = winnow::write_all(descriptor, bytes);
  if (reason != 0 && reason != EPIPE) {
    throw Error(ErrorCode::kIo, "writing to " + name + " failed: " + std::strerror(reason));
  }
  return reason == 0;
}

bool write_output(std::string_view text) { return write_all(STDOUT_FILENO, text, "the standard output"); }

}  // namespace winnow::cli
