#include "text/word_breaks.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/utf8.h"
#include "schema/character_set.h"

namespace winnow {
namespace {

// The kinds that libllama reads with loops of its own instead of std::regex.
constexpr std::array<std::string_view, 56> kLoops = {"a.x-4.0",
                                                     "chatglm-bpe",
                                                     "codeshell",
                                                     "command-r",
                                                     "dbrx",
                                                     "deepseek-r1-qwen",
                                                     "exaone",
                                                     "exaone4",
                                                     "f2llmv2",
                                                     "falcon-h1",
                                                     "falcon3",
                                                     "gemma4",
                                                     "gigachat",
                                                     "glm4",
                                                     "glm5",
                                                     "gpt-2",
                                                     "granite-docling",
                                                     "granite-embed-multi-311m",
                                                     "grok-2",
                                                     "hunyuan",
                                                     "jais",
                                                     "jina-de",
                                                     "jina-es",
                                                     "jina-v1-en",
                                                     "jina-v2-code",
                                                     "jina-v2-de",
                                                     "jina-v2-es",
                                                     "jina-v5-nano",
                                                     "kimi-k2",
                                                     "kormo",
                                                     "laguna",
                                                     "lfm2",
                                                     "llama-bpe",
                                                     "llama-v3",
                                                     "llama3",
                                                     "megrez",
                                                     "mellum",
                                                     "mellum2",
                                                     "midm-2.0",
                                                     "minerva-7b",
                                                     "modern-bert",
                                                     "mpt",
                                                     "olmo",
                                                     "phi-2",
                                                     "pixtral",
                                                     "qwen2",
                                                     "qwen35",
                                                     "refact",
                                                     "roberta-bpe",
                                                     "sarvam-moe",
                                                     "smaug-bpe",
                                                     "smollm",
                                                     "solar-open",
                                                     "stablelm2",
                                                     "starcoder",
                                                     "trillion"};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

bool is_break_of_words(std::string_view text, std::size_t at) {
  return at > 0 && at + 1 < text.size() && text[at] == ' ' && is_small(text[at - 1]) && is_small(text[at + 1]);
}

// Some kinds leave the last of several white spaces before a word apart, and take them all at the end of a text. A
// line's end alone after a visible character is the same for them.
bool is_break_of_lines(std::string_view text, std::size_t at, bool after_spaces) {
  return at > 1 && at < text.size() && text[at - 1] == '\n' && is_letter(text[at]) &&
         (after_spaces || (is_ascii(text[at - 2]) && std::isgraph(static_cast<unsigned char>(text[at - 2])) != 0));
}

}  // namespace

WordBreaks::WordBreaks(std::string_view kind, std::size_t window_bytes) : most_digits_(window_bytes / 32) {
  recurse_ = std::find(kLoops.begin(), kLoops.end(), kind) == kLoops.end();
  const bool has_words_of_words = kind == "superbpe";
  at_spaces_ = !has_words_of_words && kind != "exaone-moe";
  after_spaces_ = !at_spaces_;
  at_lines_ = !has_words_of_words;
  knows_all_digits_ = !has_words_of_words;
  groups_ascii_alone_ = kind == "default" || kind == "falcon";
  groups_from_end_ = has_words_of_words || kind == "afmoe" || kind == "tiny_aya" || kind == "cohere2moe";
}

std::size_t WordBreaks::last(std::string_view text, std::size_t begin, std::size_t end, Number& number) const {
  if (groups_from_end_) {
    if (const std::size_t at = in_long_number(text, begin, end, number); at > begin) return at;
  }
  if (end == text.size()) return begin;
  for (std::size_t at = end; at-- > begin + 1;) {
    if (at_spaces_ && is_break_of_words(text, at)) return at;
    if (at_lines_ && is_break_of_lines(text, at, after_spaces_)) return at;
  }
  return begin;
}

// Returns a place before a group of three digits of the first long number, or `begin` if there is none. libllama's time
// for a number grows with the square of its length.
std::size_t WordBreaks::in_long_number(std::string_view text, std::size_t begin, std::size_t end,
                                       Number& number) const {
  const auto bytes_at = [&](std::size_t place) {
    const std::size_t n = digit_bytes(text.substr(place));
    return n == 1 || knows_all_digits_ ? n : 0;
  };
  std::size_t n_digits = 0;
  std::size_t at = begin;
  for (std::size_t n = bytes_at(at); at < end && (n_digits < most_digits_ || n == 0); n = bytes_at(at)) {
    n_digits = n > 0 ? n_digits + 1 : 0;
    at += std::max(n, std::size_t{1});
  }
  if (at >= end || n_digits < most_digits_) return begin;
  if (number.end <= at) {
    number = {at, at, 0};
    for (std::size_t n = bytes_at(at); n > 0; n = bytes_at(number.end), ++number.n_digits) number.end += n;
  }
  for (; number.begin < at; number.begin += bytes_at(number.begin)) --number.n_digits;
  for (std::size_t n = (3 - number.n_digits % 3) % 3; n > 0; --n) {
    do --at;
    while (continues_character(text[at]));
  }
  return at;
}

std::size_t WordBreaks::digit_bytes(std::string_view text) {
  static const CharacterSet digits = CharacterSet::named("N").value();
  if (text.empty()) return 0;
  if (is_ascii(text[0])) return is_digit(text[0]) ? 1 : 0;
  const Utf8Step step = first_character(text);
  return digits.contains(step.character) ? step.n_bytes : 0;
}

bool WordBreaks::may_be_in(std::string_view special) {
  if (special.empty() || is_letter(special.front()) || is_letter(special.back())) return true;
  for (std::size_t at = 1; at < special.size(); ++at) {
    if (is_break_of_words(special, at) || is_break_of_lines(special, at, true)) return true;
  }
  return false;
}

}  // namespace winnow
