// UTF-8: where it is broken, how it is repaired, and where a text may be cut.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {

// U+FFFD, for what is no character.
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// What a text begins with.
struct Utf8Step {
  enum class Kind {
    kCharacter,
    kMalformed,   // n_bytes that are no character, whatever follows
    kIncomplete,  // all of the text is the beginning of a character whose rest may follow
  };
  Kind kind;
  std::size_t n_bytes;
  char32_t character;  // U+FFFD unless kind is kCharacter
};

// `text` is not empty. Overlong forms, surrogates and what lies beyond U+10FFFF are malformed; of malformed bytes as
// many make one step as one U+FFFD replaces by the Unicode Standard's practice (3.9, "substitution of maximal
// subparts").
Utf8Step first_character(std::string_view text);

// Where the first malformed or incomplete sequence begins, in bytes.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// `bytes` with one U+FFFD for every malformed or incomplete sequence.
std::string valid_utf8(std::string_view bytes);

// Bytes at the end (0 to 3) that are the beginning of a character whose rest may follow.
std::size_t incomplete_tail(std::string_view text);

// A byte inside a character, which no character begins with.
inline bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// The number of bytes, at most `n_bytes`, after which valid UTF-8 can be cut without splitting a character.
std::size_t whole_characters(std::string_view text, std::size_t n_bytes);

// Characters of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace winnow
