// Keeps typed lines from one chat to the next.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::cli {

// A file of lines that only its owner may read. Chats that run at the same time append to it in turn.
class ChatHistory {
 public:
  static constexpr std::size_t kMostLines = 1000;

  // Opens or makes the file, with its folder. Throws Error(kIo, kBadFile).
  explicit ChatHistory(std::string path);

  // Returns the last kMostLines lines that the file had when it was opened.
  const std::vector<std::string>& lines() const { return lines_; }
  // Appends a line to the file. Throws Error(kIo).
  void add(std::string_view line) const;

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

// Returns $XDG_STATE_HOME/winnow/chat-history, or its place under the home folder. Throws Error(kNotFound) if the
// environment names neither.
std::string default_history_path();

}  // namespace winnow::cli
