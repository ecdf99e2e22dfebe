// Porter's suffix stripping with NLTK's extensions, as rouge_score uses it.
#pragma once

#include <string>

namespace winnow::eval {

// Returns the stem of `word`, which is lower-case ASCII.
std::string porter_stem(std::string word);

}  // namespace winnow::eval
