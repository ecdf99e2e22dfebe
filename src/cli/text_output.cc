#include "cli/text_output.h"

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

}  // namespace winnow::cli
