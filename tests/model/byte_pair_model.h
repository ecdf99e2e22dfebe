// Tokenizers of byte pairs, for every name of a way to cut words that libllama knows.
#pragma once

#include <gguf.h>

#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace winnow::test {

std::span<const char* const> kinds_of_words();

// For TinyModel's edit_metadata: a tokenizer of every byte, and of texts that are joined out of two halves at a time:
// long runs of one character, words, numbers.
void set_byte_pairs(gguf_context* file, const char* kind);

// libllama's tokens of a text in one piece, on a thread with a stack of 1 GiB.
std::vector<Token> whole_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace winnow::test
