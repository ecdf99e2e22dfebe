// The source of a prompt: -p, -f or a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/input_file.h"
#include "winnow/model.h"

namespace winnow::cli {

struct PromptFlags {
  std::optional<std::string> text;  // -p
  std::optional<std::string> file;  // -f; "-" is the standard input
};

// A prompt: -p, else -f, else the standard input if something is piped into it. It is opened at once, so that an
// unreadable one is found before a model is loaded, and read only as far as a context can hold it.
class PromptSource {
 public:
  // `what` is its name in messages. Throws Error(kIo), Error(kInvalidArgument) for an empty one, and UsageError if
  // there is none or two are given.
  explicit PromptSource(const PromptFlags& flags, std::string what = "prompt");

  // Returns the whole prompt, without one newline at its end. Throws Error(kContextFull) if it surely has more than
  // n_ctx tokens; it is then read no further than shows that.
  std::string read(const Model& model, std::int32_t n_ctx);

  // Returns as much as surely holds n_tokens tokens, or the whole, as running text. Throws Error(kBadFile) if it is not
  // UTF-8.
  std::string read_beginning(const Model& model, std::int64_t n_tokens);

  // Returns true if there is nothing more to read.
  bool is_whole() const { return is_whole_; }

 private:
  // Reads until there are n_bytes bytes or the input ends.
  void read_bytes(std::size_t n_bytes);

  std::string what_, text_, name_;
  bool is_whole_ = false;
  std::unique_ptr<InputStream> stream_;  // null for -p
};

}  // namespace winnow::cli
