// Text as Python's str sees it, which is how the benchmarks' own code scores: code points, and Unicode's white space,
// digits and cases (of Python 3.11).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

using Text = std::u32string;
using TextView = std::u32string_view;

// Decodes UTF-8. Invalid bytes become U+FFFD, e.g. where an answer ends inside a character.
Text decode(std::string_view utf8);
std::string encode(TextView text);

bool is_space(char32_t c);           // str.isspace(), \s
bool is_digit(char32_t c);           // \d
bool is_ascii_digit(char32_t c);     // [0-9]
bool is_word_character(char32_t c);  // \w
bool is_han(char32_t c);             // U+4E00 to U+9FD5, jieba's range

// str.lower() and str.upper(), except for the form of a final sigma.
Text lower(TextView text);
Text upper(TextView text);

TextView strip(TextView text);                           // str.strip()
TextView strip_left(TextView text, char32_t c);          // str.lstrip(c)
std::vector<Text> split(TextView text);                  // str.split()
std::vector<Text> split_at(TextView text, char32_t at);  // str.split(at)
Text join(const std::vector<Text>& parts, TextView between);
Text replace_all(Text text, TextView from, TextView to);  // str.replace()
// Returns every maximal run of characters for which `test` is true.
std::vector<Text> runs_of(TextView text, bool (*test)(char32_t));

}  // namespace winnow::eval
