// Stop texts and characters that come in pieces.

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "expect_error.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow {
namespace {

struct Shown {
  std::string text;
  bool is_stopped;
};

// Feeds `text` in pieces of `n` bytes.
Shown show(const std::string& text, std::size_t n, const std::vector<std::string>& stops) {
  TextStream answer(stops);
  std::string shown;
  for (std::size_t i = 0; i < text.size() && !answer.is_stopped(); i += n) shown += answer.add(text.substr(i, n));
  const bool is_stopped = answer.is_stopped();
  return {shown + answer.finish(), is_stopped};
}

TEST(TextStreamTest, StopsAreFoundAcrossPieces) {
  for (std::size_t n = 1; n < 12; ++n) {
    const Shown one = show("Hello world. Next", n, {"world"});
    EXPECT_EQ(one.text, "Hello ");
    EXPECT_TRUE(one.is_stopped);
    EXPECT_EQ(show("aaab", n, {"aab"}).text, "a");
    EXPECT_EQ(show("a\n\nb", n, {"END", "\n\n"}).text, "a");
    const Shown none = show("Hello wor", n, {"world"});
    EXPECT_EQ(none.text, "Hello wor");
    EXPECT_FALSE(none.is_stopped);
  }
}

TEST(TextStreamTest, TheFirstOfSeveralStopsCounts) {
  TextStream answer(std::vector<std::string>{"two", "one"});
  EXPECT_EQ(answer.add("zero one two"), "zero ");
  EXPECT_TRUE(answer.is_stopped());
  EXPECT_EQ(answer.add("more"), "");
  EXPECT_EQ(answer.finish(), "");
}

TEST(TextStreamTest, NothingOfAStopIsShownEarly) {
  TextStream answer(std::vector<std::string>{"STOP"});
  EXPECT_EQ(answer.add("abcST"), "abc");
  EXPECT_EQ(answer.add("A"), "STA");
  EXPECT_EQ(answer.add("STO"), "");
  EXPECT_EQ(answer.finish(), "STO");
}

TEST(TextStreamTest, CharactersComeWhole) {
  TextStream answer;
  EXPECT_EQ(answer.add("a\xF0\x9F"), "a");
  EXPECT_EQ(answer.add("\x98"), "");
  EXPECT_EQ(answer.add("\x80!"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(answer.add("\xC3"), "");
  EXPECT_EQ(answer.finish(), "\xEF\xBF\xBD");
}

TEST(TextStreamTest, ByteByByteEveryCharacterComesWhole) {
  TextStream stream;
  std::vector<std::string> pieces;
  for (const char byte : std::string("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z")) {
    const std::string piece = stream.add({&byte, 1});
    if (!piece.empty()) pieces.push_back(piece);
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "z"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStreamTest, WhatIsNoCharacterIsReplaced) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(show("a\xFFz", 1, {}).text, "a" + bad + "z");
  EXPECT_EQ(show("\xE2\x82z", 1, {}).text, bad + "z");  // cut short by another character
  EXPECT_EQ(show("\xE2\x82", 1, {}).text, bad);         // cut short by the end
}

TEST(TextStreamTest, EmptyStopsAreRefused) {
  test::expect_error(ErrorCode::kInvalidArgument, "a stop text is empty", [&] {
    TextStream(std::vector<std::string>{"a", ""});
  });
}

TEST(TextStreamTest, PiecesChangeNothing) {
  std::mt19937 random(1);
  const std::string alphabet = "ab\xC3\xA9 \n";
  for (int round = 0; round < 2000; ++round) {
    std::string text, stop;
    for (int i = 0; i < 30; ++i) text += alphabet[random() % alphabet.size()];
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) stop += "ab "[random() % 3];
    const std::size_t place = text.find(stop);
    const std::string expected = valid_utf8(text.substr(0, place));
    const Shown shown = show(text, 1 + random() % 4, {stop});
    EXPECT_EQ(shown.text, expected) << round;
    EXPECT_EQ(shown.is_stopped, place != std::string::npos);
  }
}

}  // namespace
}  // namespace winnow
