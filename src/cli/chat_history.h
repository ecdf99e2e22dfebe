// Typed lines from one chat to the next.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::cli {

// A file of lines that its owner alone may read. Chats that run at the same time add to it in turn.
class ChatHistory {
 public:
  static constexpr std::size_t kMostLines = 1000;

  // Opens or makes it, with its folder. Throws Error(kIo, kBadFile).
  explicit ChatHistory(std::string path);

  // The last kMostLines.
  const std::vector<std::string>& lines() const { return lines_; }
  // Throws Error(kIo).
  void add(std::string_view line) const;

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

// $XDG_STATE_HOME/winnow/chat-history, or its place under the home folder. Throws Error(kNotFound) when the environment
// names neither.
std::string default_history_path();

}  // namespace winnow::cli
