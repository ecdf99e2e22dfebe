#include "text/infill_tokens.h"

#include <llama.h>

namespace winnow {

InfillTokens find_infill_tokens(const Tokenizer& tokenizer) {
  if (!tokenizer.has_tokens()) return {};
  const llama_vocab* vocab = tokenizer.vocab();
  return {.prefix = llama_vocab_fim_pre(vocab),
          .suffix = llama_vocab_fim_suf(vocab),
          .middle = llama_vocab_fim_mid(vocab),
          .separator = llama_vocab_fim_sep(vocab)};
}

}  // namespace winnow
