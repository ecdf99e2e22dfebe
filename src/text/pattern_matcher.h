// Matches of a regular expression in a text, one after the other, in time linear in the text: of the matches that begin
// first, the one that a backtracking matcher (ECMAScript's, Perl's) finds first. No call recurses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "schema/character_set.h"
#include "schema/pattern.h"

namespace winnow {

// A compiled pattern. Immutable; several threads may search with it at once, each with a Search of its own.
class PatternMatcher {
 public:
  // Throws Error(kUnsupported) for a pattern with \b or ^, one that looks ahead further than one character, or one
  // that matches the empty text.
  explicit PatternMatcher(const Pattern& pattern);

  struct Match {
    std::size_t begin = 0, end = 0;  // characters

    bool operator==(const Match&) const = default;
  };

  // The matches in one text, from its beginning to its end.
  class Search {
   public:
    Search(const PatternMatcher& matcher, std::u32string_view text) : matcher_(matcher), text_(text) {}

    // Returns the first match behind the one before it, or nullopt if there is none.
    std::optional<Match> next();

   private:
    std::optional<std::size_t> end_from(std::size_t begin);
    bool is_new(std::uint32_t step, std::size_t at);

    struct State {
      std::uint32_t step = 0;
      std::size_t at = 0;
    };

    const PatternMatcher& matcher_;
    std::u32string_view text_;
    std::size_t from_ = 0;  // where the next match may begin
    // A bit for each step at each place from marks_begin_ to furthest_, set if it was tried.
    std::vector<std::uint64_t> marks_;
    std::size_t marks_begin_ = 0, furthest_ = 0;
    std::vector<State> untried_;  // the last one is tried next
  };

 private:
  enum class Kind : std::uint8_t {
    kCharacters,  // `n` characters of the set `first`
    kAhead,       // the next character is one of the set `first`
    kNotAhead,    // it is none of it, or the text ends
    kEnd,         // the text ends
    kEither,      // go on at `first` or, if that leads nowhere, at `second`
    kJump,        // go on at `first`
    kMatch,
  };
  struct Step {
    Kind kind = Kind::kMatch;
    std::uint32_t first = 0, second = 0, n = 0;
  };
  // A set whose first 128 characters are looked up.
  struct Set {
    explicit Set(const CharacterSet& characters);
    bool contains(char32_t character) const;

    CharacterSet all;
    std::uint64_t ascii[2] = {};
  };

  void add(const Pattern& pattern);
  void add_repeat(const Pattern& repeat);
  void add_choice(const Pattern& choice);
  std::uint32_t add_set(const CharacterSet& set);
  std::uint32_t n_steps() const { return static_cast<std::uint32_t>(steps_.size()); }

  std::vector<Step> steps_;
  std::vector<Set> sets_;
};

}  // namespace winnow
