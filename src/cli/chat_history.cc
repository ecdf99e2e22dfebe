#include "cli/chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "cli/text_output.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnFile = S_IRUSR | S_IWUSR;

[[noreturn]] void fail_to_write(const std::string& path) {
  throw Error(ErrorCode::kIo, "cannot write the history '" + path + "': " + std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, kOwnFile)) {
    if (descriptor_ < 0) fail_to_write(path);
    struct stat info = {};
    if (fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode)) {
      // The file may have been made with other permissions.
      if ((info.st_mode & 0777) != kOwnFile && fchmod(descriptor_, kOwnFile) != 0) close_and_fail(path);
      return;
    }
    errno = EINVAL;
    close_and_fail(path);
  }
  ~Descriptor() { close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  [[noreturn]] void close_and_fail(const std::string& path) const {
    const int error = errno;
    close(descriptor_);
    errno = error;
    fail_to_write(path);
  }
  int descriptor_;
};

// Replaces the file by a new one with these lines.
void rewrite(const std::string& path, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file(path, text, kOwnFile);
}

}  // namespace

ChatHistory::ChatHistory(std::string path) : path_(std::move(path)) {
  std::error_code error;
  const fs::path folder = fs::path(path_).parent_path();
  if (!folder.empty() && fs::create_directories(folder, error)) {
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  // The file must be writable, and have its permissions before it has a line.
  { const Descriptor file(path_, O_RDWR | O_CREAT); }
  std::size_t n_all = 0;
  for (std::string rest = read_input(path_, input::kHistory); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) lines_.push_back(rest.substr(0, end));
    rest.erase(0, end + 1);
    ++n_all;
  }
  if (lines_.size() > kMostLines) lines_.erase(lines_.begin(), lines_.end() - kMostLines);
  if (n_all > 2 * kMostLines) rewrite(path_, lines_);
}

void ChatHistory::add(std::string_view line) const {
  const Descriptor file(path_, O_WRONLY | O_APPEND | O_CREAT);
  write_all(file.get(), std::string(line) + "\n", "the history");  // one write: lines of two chats do not mix
}

std::string default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  // The specification says to ignore relative paths.
  if (state != nullptr && *state == '/') return std::string(state) + "/winnow/chat-history";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/state/winnow/chat-history";
  throw Error(ErrorCode::kNotFound, "there is no place for the history: set XDG_STATE_HOME or HOME");
}

}  // namespace winnow::cli
