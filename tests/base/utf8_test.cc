#include "base/utf8.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace winnow {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

// Returns the UTF-8 encoding of c, also of a surrogate.
std::string encoded(char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
}

TEST(Utf8, ReadsEveryCharacterAndNoSurrogate) {
  for (char32_t c = 0; c < 0x110100; ++c) {
    const std::string text = encoded(c);
    const Utf8Step step = first_character(text);
    const bool is_character = c < 0x110000 && !(c >= 0xD800 && c < 0xE000);
    ASSERT_EQ(step.kind == Utf8Step::Kind::kCharacter, is_character) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(step.character, is_character ? c : kReplacementCharacter);
    ASSERT_EQ(find_invalid_utf8(text).has_value(), !is_character);
    if (!is_character) continue;
    ASSERT_EQ(utf8_of(c), text);
    ASSERT_EQ(step.n_bytes, text.size());
    for (std::size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(first_character(text.substr(0, n)).kind, Utf8Step::Kind::kIncomplete);
      ASSERT_EQ(incomplete_tail("a" + text.substr(0, n)), n);
    }
    ASSERT_EQ(incomplete_tail(text), 0U);
  }
}

TEST(Utf8, FindsTheFirstBadByte) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"ok\xff", 2}, {"abc\xe2\x82", 3},      {"\xc0\x80", 0},        {"\xed\xa0\x80", 0},
      {"x\x80", 1},  {"\xf4\x90\x80\x80", 0}, {"\u65e5\u672c\xe8", 6}};
  for (const auto& [text, byte] : cases) EXPECT_EQ(find_invalid_utf8(text), byte) << text;
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

// The first cases are those of the Unicode Standard, 3.9, "U+FFFD Substitution of Maximal Subparts".
TEST(Utf8, RepairsByTheStandardsPractice) {
  EXPECT_EQ(valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            kBad + kBad + kBad + kBad + kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), kBad + kBad + kBad);
  EXPECT_EQ(valid_utf8("a\xFFz"), "a" + kBad + "z");
  EXPECT_EQ(valid_utf8("caf\xC3"), "caf" + kBad);
  EXPECT_EQ(valid_utf8("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(valid_utf8(""), "");
}

TEST(Utf8, WhatIsRepairedIsValid) {
  unsigned state = 1;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(static_cast<unsigned char>(state >> 24));
    }
    const std::string text = valid_utf8(bytes);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
    EXPECT_EQ(valid_utf8(text), text);
    // An incomplete tail that is repaired separately gives the same text.
    const std::size_t n = bytes.size() - incomplete_tail(bytes);
    EXPECT_EQ(valid_utf8(bytes.substr(0, n)) + valid_utf8(bytes.substr(n)), text);
  }
}

TEST(Utf8, CutsAndCountsWholeCharacters) {
  EXPECT_EQ(whole_characters("北京", 4), 3U);
  EXPECT_EQ(whole_characters("北京", 2), 0U);
  EXPECT_EQ(whole_characters("ab", 9), 2U);
  EXPECT_EQ(count_characters("1 ± 2"), 5U);
  EXPECT_EQ(count_characters(""), 0U);
  EXPECT_EQ(incomplete_tail("\x80\x80\x80\x80"), 0U);
  EXPECT_EQ(incomplete_tail("\xF8\x80"), 0U);  // begins no character
  EXPECT_EQ(incomplete_tail("\xED\xA0"), 0U);  // a surrogate, which no third byte completes
}

}  // namespace
}  // namespace winnow
