// Sets of code points, such as the classes of regular expressions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// The form in which a text that a grammar describes is written.
enum class TextForm {
  kJson,   // within the quotes of a JSON string: some characters are escaped
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
  // Returns the set of all characters. Halves of surrogate pairs are not among them.
  static CharacterSet all();
  // Returns the set that \p{..} names, or nullopt if the name is not known. Known are Unicode's general categories,
  // some scripts and some properties of emoji.
  static std::optional<CharacterSet> named(std::string_view name);

  void add(const CharacterSet& more);
  CharacterSet complement() const;
  CharacterSet intersection(const CharacterSet& other) const;
  // Returns the set with the letters of the other case, for ASCII and Latin-1.
  CharacterSet both_cases() const;
  bool contains(std::uint32_t value) const;
  bool is_empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, with gaps between them
  // Returns a GBNF expression for one character of the set, or "" if none of them can stand in the form.
  std::string grammar(TextForm form) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace winnow
