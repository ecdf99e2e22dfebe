// Texts that are too long for libllama's std::regex, for every pre-tokenizer with which it reads them, compared with
// libllama's tokens of the text, which need a thread with a large stack. All texts but those of the last tests are
// short and taken for long ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "expect_error.h"
#include "model/byte_pair_model.h"
#include "model/tiny_model.h"
#include "schema/character_set.h"
#include "text/grammar.h"
#include "text/tokenizer.h"
#include "text/word_patterns.h"
#include "text/word_tokenizer.h"
#include "thread_seconds.h"
#include "winnow/error.h"

namespace winnow::test {
namespace {

using Parts = std::vector<std::string>;

std::string text_of(std::mt19937& random, const Parts& parts, std::size_t n_bytes) {
  std::string text;
  while (text.size() < n_bytes) text += parts[random() % parts.size()];
  return text;
}

void expect_tokens_of_libllama(const Tokenizer& tokenizer, const std::string& text, const std::string& what) {
  const std::vector<Token> tokens = tokenizer.tokenize(text, false, false);
  const std::vector<Token> whole = whole_tokens(tokenizer, text);
  const auto same = std::mismatch(tokens.begin(), tokens.end(), whole.begin(), whole.end());
  EXPECT_TRUE(tokens == whole) << what << ": " << tokens.size() << " tokens for " << whole.size()
                               << ", other ones from " << same.first - tokens.begin();
}

TinyModel file_of(const char* kind, std::size_t run_bytes, std::span<const char* const> specials = {}) {
  return TinyModel({.edit_metadata = [=](gguf_context* file) { set_byte_pairs(file, kind, run_bytes, specials); }});
}

class LongTextTest : public testing::TestWithParam<const char*> {};

TEST_P(LongTextTest, HasTheTokensOfLibllama) {
  std::mt19937 random(1);
  const std::vector<Parts> kinds = {
      {"."},
      {" "},
      {"\n"},
      {"a"},
      {"A"},
      {"7"},
      {"\u65e5"},
      {"\u00e9"},
      {"\U0001F389"},
      {"a", "b", "t", "h", "e"},
      {"a", "B", "A", "b", "\u00e9"},
      {"A", "B", "Z"},
      {"1", "2", "3", "0"},
      {"\u65e5", "\u672c", "\u8a9e", "\u3042"},
      {"\u65e5", "\u672c", "\u3002", "\uff0c", "a"},
      {".", "=", "-", "/", "$"},
      {" ", "\t"},
      {" ", "\n", "  "},
      {"a", "b", "/", "+", "A", "Q", "7", "1"},
      {"the ", "hat ", "on ", "tent "},
      {"the ", "hat\n", "12 ", "(a.b) ", "It's ", "\u65e5\u672c "},
      {"e\u0301", "\u0301", "\u0915\u093f"},
      {"<sentinel:1", "2", "the "},
      {"the\n\n\n\n", "hat   \n"},
      {"\u0661", "\u0662", "3"},
      {"\u00bd", "1", "12"},
      {std::string(300, '8'), std::string(400, '8'), "\u0661"},
  };
  constexpr const char* kAfter[] = {"", " then", "\u00e9", "x", "\u0661\u0661 ", "\u3002", "\n"};
  const TinyModel file = file_of(GetParam(), 12);
  const Tokenizer tokenizer(file.path(), 0);
  for (const Parts& parts : kinds) {
    for (const char* before : {"", " ", "the hat", "the hat\u00a0 "}) {
      // libllama's time is quadratic in the length of such a number.
      if (std::string(GetParam()) == "superbpe" && parts[0] >= "0" && parts[0] <= "9" && *before != 0) continue;
      const std::size_t n_bytes = random() % 1000;
      const std::string text = before + text_of(random, parts, n_bytes) + kAfter[random() % std::size(kAfter)];
      expect_tokens_of_libllama(tokenizer, text, "'" + parts[0] + "' after '" + before + "'");
    }
  }
}

// The words of white space depend on what stands far away in it: on the last end of a line, on a sign before ends of
// lines, on a space after them, on blocks of 512.
TEST_P(LongTextTest, WhiteSpaceHasTheTokensOfLibllama) {
  const TinyModel file = file_of(GetParam(), 12);
  const Tokenizer tokenizer(file.path(), 0);
  std::mt19937 random(2);
  for (int i = 0; i < 40; ++i) {
    std::string text = i % 4 == 0 ? "." : "the";
    for (int part = 0; part < 4; ++part) {
      const Parts parts = {" ", "\t", "\n", "\r\n", "\u3000", "\u00a0", "\x1d", "\n\n "};
      const std::string& one = parts[random() % parts.size()];
      for (std::size_t n = random() % 2 == 0 ? 1 + random() % 3 : random() % 600; n > 0; --n) text += one;
    }
    expect_tokens_of_libllama(tokenizer, text + (i % 3 == 0 ? "" : "hat"), "white space " + std::to_string(i));
  }
}

// Tokens that the user defined are taken out before texts are split. One with an end of a line keeps words from going
// to libllama together.
TEST_P(LongTextTest, SpecialTokensAreThoseOfLibllama) {
  std::mt19937 random(3);
  for (const std::vector<const char*>& specials :
       {std::vector{"<|a|>", "<|a|", "  ", "the h"}, std::vector{"<|a|>", "\n\n", "t\n"}}) {
    const TinyModel file = file_of(GetParam(), 12, specials);
    const Tokenizer tokenizer(file.path(), 0);
    for (int i = 0; i < 10; ++i) {
      const Parts parts = {"the ", "hat\n", "\n", " ", "<|a|>", "<|a|", "12", "(a.b) ", "\u65e5"};
      expect_tokens_of_libllama(tokenizer, text_of(random, parts, 400), "special tokens " + std::to_string(i));
    }
  }
}

// libllama reads the words of these kinds itself, between the special tokens.
TEST(LongTextSpecialsTest, AreThoseOfLibllamaBetweenItsOwnWords) {
  std::mt19937 random(4);
  for (const char* kind : {"llama-bpe", "gpt-2", "qwen2"}) {
    ASSERT_TRUE(has_loops_of_libllama(kind)) << kind;
    const TinyModel file = file_of(kind, 12, std::vector<const char*>{"<|a|>", "<|a|", "  ", "the h"});
    const Tokenizer tokenizer(file.path(), 0);
    for (int i = 0; i < 10; ++i) {
      const Parts parts = {"the ", "hat\n", "\n", " ", "<|a|>", " <|a|>", "<|a|", "12", "\u65e5"};
      expect_tokens_of_libllama(tokenizer, text_of(random, parts, 400), std::string(kind) + " " + std::to_string(i));
    }
  }
}

TEST_P(LongTextTest, LongWordsHaveTheTokensOfLibllama) {
  std::mt19937 random(1);
  const TinyModel file = file_of(GetParam(), 200);
  const std::string word = text_of(random, {"a", "b", "t", "h", "e"}, Tokenizer::kMostBytesOfWords + 200);
  const std::string text = text_of(random, {"the ", "hat\n", "12 ", "(a.b) ", "It's ", "\u65e5\u672c "}, 1000);
  expect_tokens_of_libllama(Tokenizer(file.path()), text + word + text, "a long word between short ones");
}

INSTANTIATE_TEST_SUITE_P(Kinds, LongTextTest, testing::ValuesIn(kinds_with_rules()));

// A word of 26,250 equal characters once ended the process. Four times the text takes little more than four times the
// thread's time, not sixteen times.
TEST(LongWordTest, OneCharacterManyTimesIsReadInProportion) {
  for (const char* kind : {"tekken", "gpt-4o", "deepseek-llm", "superbpe", "jais-2"}) {
    const TinyModel file = file_of(kind, 200);
    const Tokenizer tokenizer(file.path());
    for (const char* character : {".", "A", "7", "\u65e5", " ", "\n "}) {
      const auto seconds_for = [&](std::size_t n_bytes) {
        std::string text;
        while (text.size() < n_bytes) text += character;
        const double start = thread_seconds();
        const std::vector<Token> tokens = tokenizer.tokenize(text, false, false);
        const double seconds = thread_seconds() - start;
        EXPECT_EQ(tokenizer.detokenize(tokens).size(), text.size()) << character;
        return seconds;
      };
      seconds_for(1 << 12);
      const double few = seconds_for(1 << 14);
      EXPECT_LT(seconds_for(1 << 16), 10 * few + 0.05) << kind << " " << character;
    }
  }
}

// The text of a token that a grammar names is no exception.
TEST(LongWordTest, AGrammarsTokenHasTheLengthOfOne) {
  for (const char* kind : {"tekken", "gpt-4o", "default"}) {
    const TinyModel file = file_of(kind, 12, std::vector<const char*>{"<|a|>"});
    const Tokenizer tokenizer(file.path());
    EXPECT_EQ(parse_grammar("root ::= <|a|> !<|a|>", tokenizer.vocab()).rules.size(), 1U);
    const auto expect_refused = [&](std::size_t n_bytes, const std::string& part) {
      const std::string grammar = "root ::= <" + std::string(n_bytes - 2, 'a') + ">";
      expect_error(ErrorCode::kInvalidArgument, part, [&] { parse_grammar(grammar, tokenizer.vocab()); });
    };
    expect_refused(1024, "is not one token of this model");
    expect_refused(1025, "a token's text may have 1024 bytes at most");
    expect_refused(std::size_t{1} << 20, "1024 bytes at most");
  }
}

// winnow's sets of characters are those of the Unicode version that libllama has.
TEST(LongTextCharactersTest, AreOfTheCategoriesThatLibllamaTakesThemFor) {
  std::vector<std::uint32_t> characters;
  for (const char* name : {"L", "N", "P", "S", "M", "Z"}) {
    const CharacterSet set = CharacterSet::named(name).value();
    for (const auto& [first, last] : set.ranges()) {
      for (const std::uint32_t one : {first - 1, first, last, last + 1}) {
        if (CharacterSet::all().contains(one)) characters.push_back(one);
      }
    }
  }
  ASSERT_GT(characters.size(), 1000U);
  for (const char* kind : {"gpt-4o", "deepseek-v3", "deepseek-llm", "afmoe"}) {
    const TinyModel file = file_of(kind, 12);
    const Tokenizer tokenizer(file.path(), 0);
    std::string text;
    for (const std::uint32_t one : characters) {
      for (const char* after : {"a", "1", ".", " "}) text += utf8_of(one) + after;
      if (text.size() < 4000) continue;
      expect_tokens_of_libllama(tokenizer, text, std::string(kind) + " up to " + std::to_string(one));
      text.clear();
    }
  }
}

TEST(LongTextKindTest, EachHasRulesOrLoopsOfLibllama) {
  for (const std::string kind : kinds_of_words())
    EXPECT_NE(word_rules(kind).empty(), !has_loops_of_libllama(kind)) << kind;
}

TEST(LongTextKindTest, WithoutRulesIsRefused) {
  const TinyModel file = file_of("tekken", 12);
  const std::vector<std::string> paths = {file.path()};
  expect_error(ErrorCode::kUnsupported, "the pre-tokenizer 'new-kind' (tokenizer.ggml.pre), which long texts need",
               [&] { WordTokenizer(paths, {}, "new-kind"); });
}

TEST(LongWordTest, AKindThatLibllamaAbortsOnIsRefused) {
  const TinyModel file = file_of("whitespace", 200);
  expect_error(ErrorCode::kBadFile, "'whitespace'", [&] { Tokenizer(file.path()); });
}

}  // namespace
}  // namespace winnow::test
