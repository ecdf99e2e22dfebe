#include "server/infill.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "model/model_impl.h"
#include "text/infill_tokens.h"
#include "winnow/error.h"

namespace winnow::server {

namespace {

// The most bytes of a file's name.
constexpr std::size_t kMostFileNameBytes = 1024;

void keep_end(std::string& text, std::size_t n_bytes) {
  if (text.size() > n_bytes) text = valid_utf8(text.substr(text.size() - n_bytes));
}

}  // namespace

void shorten(const Model& model, std::size_t most, InfillText& text) {
  const std::size_t n_bytes = most * std::max<std::size_t>(model.impl().tokenizer.pieces().longest, 1);
  keep_end(text.prefix, n_bytes);
  if (text.suffix.size() > n_bytes) text.suffix = valid_utf8(text.suffix.substr(0, n_bytes));
  std::size_t n_left = n_bytes;
  for (auto file = text.files.end(); file != text.files.begin();) {
    if (n_left == 0) {
      text.files.erase(text.files.begin(), file);
      return;
    }
    --file;
    keep_end(file->first, kMostFileNameBytes);
    keep_end(file->second, n_left);
    n_left -= std::min(n_left, file->second.size());
  }
}

// The order is llama-server's: other files, then <prefix> .. <suffix> .. <middle>.
std::vector<Token> infill_tokens(const Model& model, const InfillText& text, std::size_t most) {
  const InfillTokens marks = find_infill_tokens(model.impl().tokenizer);
  if (!marks.exist()) {
    throw Error(
        ErrorCode::kUnsupported,
        "this model has no tokens to fill in the middle between a prefix and a suffix: use one that was trained "
        "for it, or a prompt without a suffix");
  }
  const auto tokens_of = [&](const std::string& more) { return model.tokenize(more, false, false); };
  using Tokens = std::span<const Token>;
  const auto append = [](std::vector<Token>& to, Tokens more) { to.insert(to.end(), more.begin(), more.end()); };
  std::vector<Token> files;
  for (const auto& [name, content] : text.files) {
    if (marks.separator >= 0) {
      files.push_back(marks.separator);
      append(files, tokens_of(name + "\n" + content));
    } else {
      append(files, tokens_of("\n\n--- snippet ---\n\n" + content));
    }
  }
  if (!text.files.empty() && marks.separator >= 0) {
    files.push_back(marks.separator);
    append(files, tokens_of("filename\n"));
  }
  const std::vector<Token> prefix = tokens_of(text.prefix), suffix = tokens_of(text.suffix),
                           begun = tokens_of(text.begun);
  std::vector<Token> tokens = model.tokenize("", true, false);  // the begin token, where there is one
  constexpr std::size_t kMarks = 3;
  std::size_t n_left = most - std::min(most, tokens.size() + kMarks + begun.size());
  const auto take = [&](std::size_t n) {
    n = std::min(n, n_left);
    n_left -= n;
    return n;
  };
  const std::size_t n_beside_suffix = n_left - std::min(n_left, suffix.size());
  const std::size_t n_prefix = take(std::min(prefix.size(), std::max(n_beside_suffix, n_left / 4 * 3)));
  const std::size_t n_suffix = take(suffix.size());
  append(tokens, Tokens(files).last(take(files.size())));
  tokens.push_back(marks.prefix);
  append(tokens, Tokens(prefix).last(n_prefix));
  tokens.push_back(marks.suffix);
  append(tokens, Tokens(suffix).first(n_suffix));
  tokens.push_back(marks.middle);
  append(tokens, begun);
  return tokens;
}

}  // namespace winnow::server
