// Refuses grammars that libllama's parser would print about, not survive or not finish.
#pragma once

#include <string_view>

struct llama_vocab;

namespace winnow {

// Throws Error(kInvalidArgument) that says where (line and byte) and what is wrong with the GBNF text.
void check_grammar(std::string_view text, const llama_vocab* vocab);

}  // namespace winnow
