// A small backtracking matcher of texts against GBNF grammars, independent of libllama's.
#pragma once

#include <string>

namespace winnow::test {

bool gbnf_matches(const std::string& grammar, const std::string& text);

}  // namespace winnow::test
