#include "cli/text_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/utf8.h"
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

std::string CharacterAssembler::put(std::string_view bytes) {
  waiting_ += bytes;
  const std::size_t n_whole = waiting_.size() - incomplete_tail(waiting_);
  std::string text = valid_utf8(std::string_view(waiting_).substr(0, n_whole));
  waiting_.erase(0, n_whole);
  return text;
}

std::string CharacterAssembler::finish() {
  std::string text = valid_utf8(waiting_);
  waiting_.clear();
  return text;
}

}  // namespace winnow::cli
