// UTF-8: finding and repairing malformed sequences, and cutting a text between characters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "winnow/error.h"

namespace winnow {

// U+FFFD, which replaces malformed bytes.
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// The character, or the invalid sequence, that a text begins with.
struct Utf8Step {
  enum class Kind {
    kCharacter,
    kMalformed,   // n_bytes are invalid, whatever follows
    kIncomplete,  // the text ends inside a character whose rest may follow
  };
  Kind kind;
  std::size_t n_bytes;
  char32_t character;  // U+FFFD unless kind is kCharacter
};

// Returns the first step of `text`, which must not be empty. Overlong forms, surrogates and code points beyond U+10FFFF
// are malformed. One step has as many malformed bytes as one U+FFFD replaces by the Unicode Standard's practice (3.9,
// "substitution of maximal subparts").
Utf8Step first_character(std::string_view text);

// Returns the byte at which the first malformed or incomplete sequence begins, or nullopt if there is none.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Throws Error(code) with the byte and the way out unless the text, which errors call `what`, is UTF-8.
void check_utf8(std::string_view text, const std::string& what, ErrorCode code = ErrorCode::kInvalidArgument);

// Returns `bytes` with one U+FFFD for each malformed or incomplete sequence.
std::string valid_utf8(std::string_view bytes);

// Returns the UTF-8 of a character, which must be a code point that is no surrogate.
std::string utf8_of(char32_t character);

// Returns the number of bytes at the end (0 to 3) that begin a character whose rest may follow.
std::size_t incomplete_tail(std::string_view text);

// Returns whether the byte is a continuation byte, which no character begins with.
inline bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// Returns the number of bytes, at most `n_bytes`, after which valid UTF-8 can be cut without splitting a character.
std::size_t whole_characters(std::string_view text, std::size_t n_bytes);

// Returns the number of characters of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace winnow
