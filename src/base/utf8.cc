#include "base/utf8.h"

#include <algorithm>

namespace winnow {
namespace {

// Returns the number of bytes of the sequence that begins with this byte, or 0 if none does.
std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation byte, or the lead of an overlong form
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Returns whether `second` may follow `lead`. Its range excludes overlong forms, surrogates and code points beyond
// U+10FFFF.
bool may_follow(unsigned char lead, unsigned char second) {
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

}  // namespace

Utf8Step first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = sequence_length(lead);
  if (length == 1) return {Utf8Step::Kind::kCharacter, 1, lead};
  if (length == 0) return {Utf8Step::Kind::kMalformed, 1, kReplacementCharacter};
  char32_t character = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i, kReplacementCharacter};
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_right = i == 1 ? may_follow(lead, byte) : continues_character(text[i]);
    if (!is_right) return {Utf8Step::Kind::kMalformed, i, kReplacementCharacter};
    character = character << 6 | (byte & 0x3FU);
  }
  return {Utf8Step::Kind::kCharacter, length, character};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {  // most bytes of most texts
      ++i;
      continue;
    }
    const Utf8Step step = first_character(text.substr(i));
    if (step.kind != Utf8Step::Kind::kCharacter) return i;
    i += step.n_bytes;
  }
  return std::nullopt;
}

void check_utf8(std::string_view text, const std::string& what, ErrorCode code) {
  if (const auto offset = find_invalid_utf8(text)) {
    throw Error(code, what + " is not UTF-8 at byte " + std::to_string(*offset) +
                          ": convert it, for example with iconv -t UTF-8");
  }
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  while (const auto bad = find_invalid_utf8(bytes)) {
    text += bytes.substr(0, *bad);
    text += kReplacementText;
    bytes.remove_prefix(*bad);
    bytes.remove_prefix(first_character(bytes).n_bytes);
  }
  return text += bytes;
}

std::string utf8_of(char32_t character) {
  const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
  const auto next = [&](int shift) { return byte(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) return {byte(character)};
  if (character < 0x800) return {byte(0xC0 | character >> 6), next(0)};
  if (character < 0x10000) return {byte(0xE0 | character >> 12), next(6), next(0)};
  return {byte(0xF0 | character >> 18), next(12), next(6), next(0)};
}

std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    if (continues_character(tail.front())) continue;
    return first_character(tail).kind == Utf8Step::Kind::kIncomplete ? n : 0;
  }
  return 0;
}

std::size_t whole_characters(std::string_view text, std::size_t n_bytes) {
  if (n_bytes >= text.size()) return text.size();
  while (n_bytes > 0 && continues_character(text[n_bytes])) --n_bytes;
  return n_bytes;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues_character(byte); }));
}

}  // namespace winnow
