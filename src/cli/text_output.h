// Generated text on its way to the standard output.
#pragma once

#include <string>
#include <string_view>

namespace winnow::cli {

// Writes everything to a file descriptor. False when the reader of a pipe has gone; throws Error(kIo) naming `name` for
// other failures. SIGPIPE must be ignored.
bool write_all(int descriptor, std::string_view bytes, const std::string& name);

// Turns tokens' bytes into whole UTF-8 characters: what is not complete yet waits, what can never be complete becomes
// the replacement character.
class CharacterAssembler {
 public:
  // The characters that are complete now.
  std::string put(std::string_view bytes);
  // What was waiting, replaced.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace winnow::cli
