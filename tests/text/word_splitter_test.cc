// The words of long texts and their tokens, without libllama's own splitting (long_text_test compares with that), so
// that sanitizers see them.
#include "text/word_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "model/byte_pair_model.h"
#include "model/tiny_model.h"
#include "text/tokenizer.h"
#include "text/word_patterns.h"

namespace winnow::test {
namespace {

using Words = std::vector<std::string>;

Words words_of(const char* kind, const std::string& text) {
  Words words;
  std::size_t begin = 0;
  for (const std::size_t end : WordSplitter(word_rules(kind)).ends(text)) {
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

TEST(WordSplitterTest, SplitsAsTheKindDoes) {
  EXPECT_EQ(words_of("gpt-4o", "It's HTMLParser 12345\n\n  x"),
            (Words{"It's", " HTMLParser", " ", "123", "45", "\n\n", " ", " x"}));
  EXPECT_EQ(words_of("tekken", "It's iPhone 12"), (Words{"It", "'s", " i", "Phone", " ", "1", "2"}));
  EXPECT_EQ(words_of("deepseek-v3", "f(x)=\u65e5\u672c1234"), (Words{"f", "(x", ")=", "\u65e5\u672c", "123", "4"}));
  EXPECT_EQ(words_of("default", "we'll pay $1234."), (Words{"we", "'", "ll", " pay", " ", "$", "123", "4", "."}));
  EXPECT_EQ(words_of("superbpe", "a 1234567 b"), (Words{"a ", "1", "234", "567", " b"}));
  EXPECT_EQ(words_of("tiny_aya", "a1234567"), (Words{"a", "1", "234", "567"}));
  EXPECT_EQ(words_of("bloom", "one,two  three"), (Words{"one", ",", "two", " ", " three"}));
  EXPECT_EQ(words_of("exaone-moe", "one two. 3"), (Words{"one two", ".", " ", "3"}));
  EXPECT_EQ(words_of("gpt-4o", ""), Words());
}

// Unicode's white space is white space, and a byte order mark is none, though ECMAScript's \s has it.
TEST(WordSplitterTest, KnowsWhiteSpace) {
  EXPECT_EQ(words_of("gpt-4o", "a\u3000\u3000b"), (Words{"a", "\u3000", "\u3000b"}));
  EXPECT_EQ(words_of("gpt-4o", "\u0085\n"), (Words{"\u0085\n"}));
  EXPECT_EQ(words_of("gpt-4o", "\ufeff\ufeff a"), (Words{"\ufeff\ufeff", " a"}));
}

TEST(WordTokenizerTest, TokensSpellTheText) {
  std::mt19937 random(5);
  const std::vector<std::string> parts = {"the ", "hat\n", "A", "12", "'s", " ", "\u65e5", "\u0661", "e\u0301", "..."};
  for (const char* kind : kinds_with_rules()) {
    const TinyModel file({.n_layer = 1, .edit_metadata = [=](gguf_context* made) { set_byte_pairs(made, kind, 12); }});
    const Tokenizer tokenizer(file.path(), 0);
    std::string text;
    for (int i = 0; i < 200; ++i) text += parts[random() % parts.size()];
    std::string spelled;
    for (const Token token : tokenizer.tokenize(text, false, false)) spelled += tokenizer.token_text(token, true);
    EXPECT_EQ(spelled, text) << kind;
  }
}

}  // namespace
}  // namespace winnow::test
