// Porter's suffix stripping with NLTK's extensions, which rouge_score uses.
#pragma once

#include <string>

namespace winnow::eval {

// `word` is lower-case ASCII.
std::string porter_stem(std::string word);

}  // namespace winnow::eval
