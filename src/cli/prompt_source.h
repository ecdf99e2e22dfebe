// Where a prompt comes from: -p, -f or a pipe.
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

// A text of at most the kind's size, without one newline at its end, as llama.cpp reads it; "-" is the standard input.
std::string read_text_file(const std::string& path, const InputKind& kind);
// The same of a text that others are taken from, which is read alike whatever system wrote it: see running_text.
std::string read_running_text(const std::string& path);

// A prompt: -p, else -f, else the standard input if something is piped into it. It is opened at once, so that what
// cannot be read is found before a model is loaded, and read only as far as a context can hold it.
class PromptSource {
 public:
  // `what` is its name in messages. Throws Error (kIo, kInvalidArgument for an empty one) and UsageError when there is
  // none or two are given.
  explicit PromptSource(const PromptFlags& flags, std::string what = "prompt");

  // The whole, without one newline at its end. Throws Error(kContextFull) for one that surely has more than n_ctx
  // tokens, of which no more is read than shows that.
  std::string read(const Model& model, std::int32_t n_ctx);

  // As much as surely holds n_tokens tokens, or the whole, as a running text. Throws Error(kBadFile) for one that is
  // not UTF-8.
  std::string read_beginning(const Model& model, std::int64_t n_tokens);

  // Whether what was read is all there is.
  bool is_whole() const { return is_whole_; }

 private:
  // Until there are n_bytes bytes or the end is met.
  void read_bytes(std::size_t n_bytes);

  std::string what_, text_, name_;
  bool is_whole_ = false;
  std::unique_ptr<InputStream> stream_;  // null for -p
};

}  // namespace winnow::cli
