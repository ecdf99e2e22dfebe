// Byte-pair tokenizers for every pre-tokenizer name that libllama knows.
#pragma once

#include <gguf.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace winnow::test {

std::span<const char* const> kinds_of_words();

// Returns those of which winnow splits long texts into words; libllama reads the others with loops of its own.
const std::vector<const char*>& kinds_with_rules();

// For TinyModel's edit_metadata: sets a tokenizer with a token for every byte and for texts that are merged from two
// halves at a time: words, numbers, and runs of one character, the longest of which have `run_bytes` or up to twice as
// many. `specials`: texts of tokens that the user defined, which are looked for before texts are split into words.
void set_byte_pairs(gguf_context* file, const char* kind, std::size_t run_bytes = 200,
                    std::span<const char* const> specials = {});

// Returns libllama's tokens of a text in one piece, computed on a thread with a stack of 1 GiB.
std::vector<Token> whole_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace winnow::test
