// Splits Chinese text into words as jieba 0.42.1 does (precise mode with its hidden Markov model), if its dictionary is
// set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/python_str.h"

namespace winnow::eval {

// jieba's dictionary and model, read from its package's folder. Immutable.
class Jieba {
 public:
  // Throws Error(kNotFound, kBadFile).
  explicit Jieba(const std::string& folder);
  ~Jieba();
  // Returns list(jieba.cut(text)), words that concatenate to the text.
  std::vector<Text> cut(TextView text) const;
  // Returns a digest of all files.
  std::string digest() const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

// Returns the words by the dictionary that set_jieba named (sample.h), or the single characters if none is set.
std::vector<Text> chinese_words(TextView text);

}  // namespace winnow::eval
