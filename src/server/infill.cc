#include "server/infill.h"

#include "model/model_impl.h"
#include "text/infill_tokens.h"
#include "winnow/error.h"

namespace winnow::server {

std::size_t InfillText::n_bytes() const {
  std::size_t n = prefix.size() + suffix.size() + begun.size();
  for (const auto& [name, text] : files) n += name.size() + text.size();
  return n;
}

// The order is llama-server's: other files, then <prefix> .. <suffix> .. <middle>.
std::vector<Token> infill_tokens(const Model& model, const InfillText& text) {
  const InfillTokens marks = find_infill_tokens(model.impl().tokenizer);
  if (!marks.exist()) {
    throw Error(
        ErrorCode::kUnsupported,
        "this model has no tokens to fill in the middle between a prefix and a suffix: use one that was trained "
        "for it, or a prompt without a suffix");
  }
  std::vector<Token> tokens = model.tokenize("", true, false);  // the begin token, where there is one
  const auto append = [&](const std::string& more) {
    const std::vector<Token> of_text = model.tokenize(more, false, false);
    tokens.insert(tokens.end(), of_text.begin(), of_text.end());
  };
  for (const auto& [name, content] : text.files) {
    if (marks.separator >= 0) {
      tokens.push_back(marks.separator);
      append(name + "\n" + content);
    } else {
      append("\n\n--- snippet ---\n\n" + content);
    }
  }
  if (!text.files.empty() && marks.separator >= 0) {
    tokens.push_back(marks.separator);
    append("filename\n");
  }
  tokens.push_back(marks.prefix);
  append(text.prefix);
  tokens.push_back(marks.suffix);
  append(text.suffix);
  tokens.push_back(marks.middle);
  append(text.begun);
  return tokens;
}

}  // namespace winnow::server
