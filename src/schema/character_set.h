// Sets of code points, as classes of regular expressions are.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// How a character stands in a text that a grammar describes.
enum class TextForm {
  kJson,   // within the quotes of a JSON string: some are escaped
  kPlain,  // as it is
};

class CharacterSet {
 public:
  struct Range {
    std::uint32_t first = 0, last = 0;  // both included

    bool operator==(const Range&) const = default;
  };
  static constexpr std::uint32_t kLast = 0x10FFFF;

  CharacterSet() = default;
  CharacterSet(std::initializer_list<Range> ranges);
  explicit CharacterSet(std::vector<Range> ranges);
  // Every character; halves of surrogate pairs are none.
  static CharacterSet all();
  // By the name that \p{..} has: a general category of Unicode's, some scripts and some properties of emoji.
  static std::optional<CharacterSet> named(std::string_view name);

  void add(const CharacterSet& more);
  CharacterSet complement() const;
  CharacterSet intersection(const CharacterSet& other) const;
  // With the letters of the other case, of ASCII and Latin-1.
  CharacterSet both_cases() const;
  bool contains(std::uint32_t value) const;
  bool is_empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, with gaps between them
  // One of them, as a GBNF expression; empty: none can stand there.
  std::string grammar(TextForm form) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace winnow
