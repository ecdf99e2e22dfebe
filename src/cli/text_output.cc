#include "cli/text_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "winnow/error.h"

namespace winnow::cli {
bool write_all(int descriptor, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kIo, "writing to " + name + " failed: " + std::strerror(errno));
    }
  }
  return true;
}

}  // namespace winnow::cli
