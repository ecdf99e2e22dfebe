#include "cli/line_input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/input_wait.h"
#include "cli/number_text.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

class LineReader : public LineSource {
 public:
  LineReader(bool shows_prompts, std::size_t most_bytes) : shows_prompts_(shows_prompts), most_bytes_(most_bytes) {}

  InputLine next(const std::string& prompt, const Interrupt& interrupt) override {
    if (shows_prompts_) std::fputs(prompt.c_str(), stderr);
    while (true) {
      const std::size_t end = buffer_.find('\n');
      if (std::min(end, buffer_.size()) > most_bytes_) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a message has more than " + bytes_text(most_bytes_) + ", too long for the context: shorten it");
      }
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return text_line(std::move(line));
      }
      if (ended_) {
        if (buffer_.empty()) return {InputLine::Kind::kEnd};
        return text_line(std::exchange(buffer_, {}));
      }
      if (!wait_for_input(interrupt)) {
        if (shows_prompts_) std::fputs("\n", stderr);
        return {InputLine::Kind::kInterrupted};
      }
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

 private:
  // Returns a line as input; some systems end a line with "\r\n".
  static InputLine text_line(std::string line) {
    if (line.ends_with('\r')) line.pop_back();
    return {InputLine::Kind::kText, std::move(line)};
  }

  bool shows_prompts_;
  std::size_t most_bytes_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<LineSource> make_line_reader(bool shows_prompts, std::size_t most_bytes) {
  return std::make_unique<LineReader>(shows_prompts, most_bytes);
}

}  // namespace winnow::cli
