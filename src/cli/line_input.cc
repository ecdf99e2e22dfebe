#include "cli/line_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "winnow/error.h"

namespace winnow::cli {

std::optional<std::string> LineInput::next(const Interrupt& interrupt) {
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (ended_) {
      if (buffer_.empty()) return std::nullopt;
      return std::exchange(buffer_, {});
    }
    if (interrupt.requested()) return std::nullopt;
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) {
      buffer_.append(bytes, static_cast<std::size_t>(count));
    } else if (count == 0) {
      ended_ = true;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kIo, std::string("reading the standard input failed: ") + std::strerror(errno));
    }
  }
}

}  // namespace winnow::cli
