// Long texts in windows, for every pre-tokenizer name that libllama knows, compared with libllama's tokens of the text
// in one piece, which need a thread with a large stack. Windows and the longest tokens are a quarter of the product's,
// but for one text, which has windows as they are.
#include "text/word_breaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "model/byte_pair_model.h"
#include "model/tiny_model.h"
#include "text/tokenizer.h"
#include "winnow/error.h"

namespace winnow::test {
namespace {

using Parts = std::vector<std::string>;

std::string text_of(std::mt19937& random, const Parts& parts, std::size_t n_bytes) {
  std::string text;
  while (text.size() < n_bytes) text += parts[random() % parts.size()];
  return text;
}

class WordBreaksTest : public testing::TestWithParam<const char*> {
 protected:
  static TinyModel file_with_runs_of(std::size_t n_bytes) {
    return TinyModel({.edit_metadata = [=](gguf_context* file) { set_byte_pairs(file, GetParam(), n_bytes); }});
  }

  static void expect_tokens_of_the_whole(const Tokenizer& tokenizer, const std::string& text, const std::string& what) {
    const std::vector<Token> tokens = tokenizer.tokenize(text, false, false);
    const std::vector<Token> whole = whole_tokens(tokenizer, text);
    const auto same = std::mismatch(tokens.begin(), tokens.end(), whole.begin(), whole.end());
    EXPECT_TRUE(tokens == whole) << what << ": " << tokens.size() << " tokens for " << whole.size()
                                 << ", other ones from " << same.first - tokens.begin();
  }
};

TEST_P(WordBreaksTest, WindowsHaveTheTokensOfTheWhole) {
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
      {std::string(300, '8'), std::string(400, '8'), "\u0661"},
  };
  constexpr const char* kAfter[] = {"", " then", "\u00e9", "x", "\u0661\u0661 ", "\u3002"};
  constexpr std::size_t kWindowBytes = Tokenizer::kWindowBytes / 4;
  const TinyModel file = file_with_runs_of(50);
  const Tokenizer tokenizer(file.path(), kWindowBytes);
  for (const Parts& parts : kinds) {
    // jais-2's blocks of 512 in white space of several kinds are counted from the beginning of a window.
    if (std::string(GetParam()) == "jais-2" && parts == Parts{" ", "\t"}) continue;
    for (const char* before : {"", " ", "the hat", "the hat\u00a0 "}) {
      // libllama's time is quadratic in the length of such a number.
      if (std::string(GetParam()) == "superbpe" && parts[0] >= "0" && parts[0] <= "9" && *before != 0) continue;
      const std::size_t n_bytes = kWindowBytes + 50 + random() % (kWindowBytes / 4);
      const std::string text = before + text_of(random, parts, n_bytes) + kAfter[random() % std::size(kAfter)];
      expect_tokens_of_the_whole(tokenizer, text, "'" + parts[0] + "' after '" + before + "'");
    }
  }
}

// Windows that begin in a word of white space are tried with the word's beginning: whole characters, each of which may
// be several tokens, from the first one that is no line's end (spark2_5).
TEST_P(WordBreaksTest, WordsOfWhiteSpaceBeginWhereTheyDoInTheWhole) {
  constexpr std::size_t kWindowBytes = Tokenizer::kWindowBytes / 16;
  const TinyModel file = file_with_runs_of(12);
  const Tokenizer tokenizer(file.path(), kWindowBytes);
  std::string wide_spaces;
  while (wide_spaces.size() < 228) wide_spaces += "\u3000";
  std::string spaces_and_lines = " ";
  while (spaces_and_lines.size() < 247) spaces_and_lines += spaces_and_lines.size() < 46 ? "\t" : "\r\n";
  for (const std::string& before : {wide_spaces, "..." + std::string(150, '\n') + "  ", "a \n\n\n\t" + wide_spaces,
                                    spaces_and_lines + "\t", "...\x1d\x1d   " + std::string(64, '\n') + "  "}) {
    std::string text = before + std::string(kWindowBytes, '\n');
    if (std::string(GetParam()) == "jais-2") text.resize(kWindowBytes);  // its blocks of white space
    expect_tokens_of_the_whole(tokenizer, text, std::to_string(before.size()) + " bytes and lines");
  }
  // The first windows have the same tokens whatever comes before them, and the last one has not.
  if (std::string(GetParam()) == "jais-2") return;
  std::string lines = "the hat\n\n\u00a0\u00a0";
  while (lines.size() < 3 * kWindowBytes / 2) lines += "\r\n";
  expect_tokens_of_the_whole(tokenizer, lines + "\n", "lines of two bytes and one");
  // A short word of white space in the middle of a window: its beginning ends with it.
  for (std::size_t n = kWindowBytes / 2 - 40; n < kWindowBytes / 2 + 8; n += 3) {
    std::string text = std::string(n, 'b') + "   " + std::string(15, '\n') + "\r\n\r\n\r\n" + std::string(15, '\n');
    while (text.size() < 3 * kWindowBytes / 2) text += "\u65e5";
    expect_tokens_of_the_whole(tokenizer, text, "white space behind " + std::to_string(n) + " letters");
  }
  // Two words of white space, of which the second one begins with ends of lines in a window's middle.
  std::string two = "\u3000\u3000\u3000\u3000\u3000\u3000   " + std::string(215, '\n');
  two += "jjj\u0915\u093f\u0915\u093f\u0915\u093f" + std::string(361, '\r') + "\n\n\n..bbb";
  while (two.size() < 3 * kWindowBytes / 2) two += "\u65e5";
  expect_tokens_of_the_whole(tokenizer, two, "two words of white space");
  // Ends of lines behind a sign may belong to its word, so that the space begins the next one.
  for (const char* sign : {"\x7f", "."}) {
    for (const std::size_t n : {415U, 416U, 417U, 418U}) {
      const std::string text = " the hat" + std::string(sign) + std::string(n, '\n') + " \n\n\n\n\n\n" + sign;
      expect_tokens_of_the_whole(tokenizer, text + std::string(300, 'a'), std::to_string(n) + " lines behind " + sign);
    }
  }
}

// Groups of three digits that count all digits go on where ASCII's digits follow others.
TEST_P(WordBreaksTest, GroupsOfDigitsGoOnInWindows) {
  if (std::string(GetParam()) == "superbpe") GTEST_SKIP() << "libllama's time is quadratic in the length of a number";
  constexpr std::size_t kWindowBytes = Tokenizer::kWindowBytes / 16;
  const TinyModel file = file_with_runs_of(12);
  const Tokenizer tokenizer(file.path(), kWindowBytes);
  for (int n = 0; n < 3; ++n) {
    std::string text = "a", last;
    for (int i = 0; i <= n; ++i) text += "\u00bd";
    for (int i = 0; i < 10; ++i) last += "\u00bd";
    for (int i = 0; i < 10; ++i) last += "12";
    text += std::string(kWindowBytes, '1') + last + "Q";
    expect_tokens_of_the_whole(tokenizer, text, std::to_string(n + 1) + " digits before ASCII's");
    std::string number =
        std::string(57, '.') + "a c " + std::string(kWindowBytes + 96 + static_cast<std::size_t>(n), '6');
    for (int i = 0; i < 40; ++i) number += "12";
    expect_tokens_of_the_whole(tokenizer, number, std::to_string(n) + " digits more behind a word");
  }
}

TEST_P(WordBreaksTest, WindowsOfTheProductHaveTheTokensOfTheWhole) {
  std::mt19937 random(1);
  const TinyModel file = file_with_runs_of(200);
  const std::string word = text_of(random, {"a", "b", "t", "h", "e"}, Tokenizer::kWindowBytes + 200);
  const std::string text = text_of(random, {"the ", "hat\n", "12 ", "(a.b) ", "It's ", "\u65e5\u672c "}, 1000);
  expect_tokens_of_the_whole(Tokenizer(file.path()), text + word + text, "a long word between short ones");
}

INSTANTIATE_TEST_SUITE_P(Kinds, WordBreaksTest, testing::ValuesIn(kinds_of_words().begin(), kinds_of_words().end()));

// A word of 26,250 equal characters once ended the process. Four times the text takes little more than four times the
// thread's time, not sixteen times.
TEST(LongWordTest, OneCharacterManyTimesIsReadInProportion) {
  const auto thread_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (const char* kind : {"tekken", "gpt-4o", "deepseek-llm", "superbpe"}) {
    const TinyModel file({.edit_metadata = [=](gguf_context* made) { set_byte_pairs(made, kind); }});
    const Tokenizer tokenizer(file.path());
    for (const char* character : {".", "A", "7", "\u65e5"}) {
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

TEST(LongWordTest, AKindThatLibllamaAbortsOnIsRefused) {
  const TinyModel file({.edit_metadata = [](gguf_context* made) { set_byte_pairs(made, "whitespace"); }});
  try {
    const Tokenizer tokenizer(file.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_NE(std::string(error.what()).find("'whitespace'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace winnow::test
