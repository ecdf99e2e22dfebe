// Whether a text follows a GBNF grammar: a small backtracking matcher, independent of libllama's.
#pragma once

#include <string>

namespace winnow::test {

bool gbnf_matches(const std::string& grammar, const std::string& text);

}  // namespace winnow::test
