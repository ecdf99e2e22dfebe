#include "cli/prompt_source.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/running_text.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "cli/feed_prompt.h"
#include "cli/text_file.h"
#include "sampling/longest_token.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

// Bytes of a file to read before the model is loaded: most prompts are no longer, and an empty one is found.
constexpr std::size_t kFirstBytes = std::size_t{1} << 16;

// Cutting a text may change the tokens at its end that continue after the cut.
constexpr std::int64_t kSpareTokens = 64;

}  // namespace

PromptSource::PromptSource(const PromptFlags& flags, std::string what) : what_(std::move(what)) {
  if (flags.text && flags.file) throw UsageError("-p and -f both give a " + what_ + ": use one of them");
  if (flags.text) {
    if (flags.text->empty()) throw UsageError("the " + what_ + " of -p is empty: give some text");
    text_ = *flags.text;
    name_ = "-p";
    is_whole_ = true;
    return;
  }
  if (!flags.file && isatty(STDIN_FILENO) == 1) {
    throw UsageError("there is no " + what_ + ": give one with -p TEXT or -f FILE, or pipe it in");
  }
  name_ = flags.file.value_or("-");
  stream_ = std::make_unique<InputStream>(name_);
  read_bytes(kFirstBytes);
  if (is_whole_ && text_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the " + what_ + " is empty: give some text with -p or -f");
  }
}

void PromptSource::read_bytes(std::size_t n_bytes) {
  if (is_whole_) return;
  stream_->read(n_bytes, text_);
  is_whole_ = stream_->ended();
  if (is_whole_) drop_newline(text_);
}

std::string PromptSource::read(const Model& model, std::int32_t n_ctx) {
  const std::size_t longest = longest_token_bytes(model);
  const std::size_t most = longest * static_cast<std::size_t>(n_ctx);
  read_bytes(most + 2);  // a newline at the end does not count
  if (!is_whole_ || text_.size() > most) {
    const std::uint64_t n_bytes =
        std::max<std::uint64_t>(text_.size(), stream_ == nullptr ? 0 : stream_->size().value_or(0));
    refuse_length(model, n_ctx, "the " + what_ + " has at least ",
                  static_cast<std::int64_t>((n_bytes + longest - 1) / longest));
  }
  return std::move(text_);
}

std::string PromptSource::read_beginning(const Model& model, std::int64_t n_tokens) {
  const std::size_t enough = longest_token_bytes(model) * static_cast<std::size_t>(n_tokens + kSpareTokens);
  read_bytes(2 * enough);  // up to half of the bytes may belong to line ends of two bytes
  if (!is_whole_) text_.resize(whole_characters(text_, text_.size()));
  std::string text = running_text(text_, name_);
  if (text.size() > enough) {
    text.resize(whole_characters(text, enough));
    is_whole_ = false;
  }
  return text;
}

}  // namespace winnow::cli
