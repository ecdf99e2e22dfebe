// Chinese words as jieba 0.42.1 splits them (precise mode with its hidden Markov model), where its dictionary is there.
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
  // list(jieba.cut(text)): joined, the words are the text again.
  std::vector<Text> cut(TextView text) const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

// By the dictionary that set_jieba named (sample.h); without one the characters.
std::vector<Text> chinese_words(TextView text);

}  // namespace winnow::eval
