#include "text/pattern_matcher.h"

#include <algorithm>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::uint32_t kMostCopies = 64;  // of a repeated part that is more than one character

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, "a pattern of words that " + what + " is not supported: please report this");
}

// Returns the set that a pattern of one character is, or nullptr for another pattern.
const CharacterSet* one_character(const Pattern& pattern) {
  if (pattern.kind == Pattern::Kind::kSet) return &pattern.set;
  const bool is_wrapped = pattern.kind == Pattern::Kind::kSequence || pattern.kind == Pattern::Kind::kChoice;
  return is_wrapped && pattern.children.size() == 1 ? one_character(pattern.children[0]) : nullptr;
}

bool matches_nothing(const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::kSet:
      return false;
    case Pattern::Kind::kSequence:
      return std::all_of(pattern.children.begin(), pattern.children.end(), matches_nothing);
    case Pattern::Kind::kChoice:
      return std::any_of(pattern.children.begin(), pattern.children.end(), matches_nothing);
    case Pattern::Kind::kRepeat:
      return pattern.least == 0 || matches_nothing(pattern.children[0]);
    default:
      return true;
  }
}

}  // namespace

PatternMatcher::Set::Set(const CharacterSet& characters) : all(characters) {
  for (std::uint32_t c = 0; c < 128; ++c) {
    if (all.contains(c)) ascii[c / 64] |= std::uint64_t{1} << c % 64;
  }
}

bool PatternMatcher::Set::contains(char32_t character) const {
  return character < 128 ? (ascii[character / 64] >> character % 64 & 1) != 0 : all.contains(character);
}

PatternMatcher::PatternMatcher(const Pattern& pattern) {
  if (matches_nothing(pattern)) refuse("matches the empty text");
  add(pattern);
  steps_.push_back({.kind = Kind::kMatch});
}

std::uint32_t PatternMatcher::add_set(const CharacterSet& set) {
  sets_.emplace_back(set);
  return static_cast<std::uint32_t>(sets_.size() - 1);
}

void PatternMatcher::add(const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::kSet:
      steps_.push_back({.kind = Kind::kCharacters, .first = add_set(pattern.set), .n = 1});
      return;
    case Pattern::Kind::kSequence:
      for (const Pattern& part : pattern.children) add(part);
      return;
    case Pattern::Kind::kChoice:
      return add_choice(pattern);
    case Pattern::Kind::kRepeat:
      return add_repeat(pattern);
    case Pattern::Kind::kLookAhead: {
      const CharacterSet* set = one_character(pattern.children[0]);
      if (set == nullptr) refuse("looks ahead further than one character");
      steps_.push_back({.kind = pattern.is_negated ? Kind::kNotAhead : Kind::kAhead, .first = add_set(*set)});
      return;
    }
    case Pattern::Kind::kEnd:
      steps_.push_back({.kind = Kind::kEnd});
      return;
    case Pattern::Kind::kBegin:
    case Pattern::Kind::kWordBoundary:
      refuse("looks back");
  }
}

// Alternatives end with a jump behind the last one.
void PatternMatcher::add_choice(const Pattern& choice) {
  std::vector<std::uint32_t> jumps;
  for (std::size_t i = 0; i < choice.children.size(); ++i) {
    const bool is_last = i + 1 == choice.children.size();
    const std::uint32_t either = n_steps();
    if (!is_last) steps_.push_back({.kind = Kind::kEither, .first = either + 1});
    add(choice.children[i]);
    if (is_last) break;
    jumps.push_back(n_steps());
    steps_.push_back({.kind = Kind::kJump});
    steps_[either].second = n_steps();
  }
  for (const std::uint32_t jump : jumps) steps_[jump].first = n_steps();
}

void PatternMatcher::add_repeat(const Pattern& repeat) {
  const Pattern& part = repeat.children[0];
  if (matches_nothing(part)) refuse("repeats the empty text");
  const CharacterSet* set = one_character(part);
  const std::uint32_t n_optional = repeat.most == Pattern::kUnbounded ? 0 : repeat.most - repeat.least;
  if ((set == nullptr && repeat.least > kMostCopies) || n_optional > kMostCopies) refuse("has that many repetitions");
  if (set != nullptr && repeat.least > 0) {
    steps_.push_back({.kind = Kind::kCharacters, .first = add_set(*set), .n = repeat.least});
  } else {
    for (std::uint32_t i = 0; i < repeat.least; ++i) add(part);
  }
  if (repeat.most == Pattern::kUnbounded) {
    const std::uint32_t loop = n_steps();
    steps_.push_back({.kind = Kind::kEither, .first = loop + 1});
    add(part);
    steps_.push_back({.kind = Kind::kJump, .first = loop});
    steps_[loop].second = n_steps();
    return;
  }
  std::vector<std::uint32_t> exits;
  for (std::uint32_t i = 0; i < n_optional; ++i) {
    exits.push_back(n_steps());
    steps_.push_back({.kind = Kind::kEither, .first = n_steps() + 1});
    add(part);
  }
  for (const std::uint32_t exit : exits) steps_[exit].second = n_steps();
}

std::optional<PatternMatcher::Match> PatternMatcher::Search::next() {
  for (std::size_t begin = from_; begin < text_.size(); ++begin) {
    if (const auto end = end_from(begin)) {
      from_ = *end;
      return Match{begin, *end};
    }
  }
  from_ = text_.size();
  return std::nullopt;
}

// A step at a place leads to a match, or to none, wherever the match began, so what led nowhere is not tried a second
// time, in later searches neither. The steps that led to a match are marked as well, which does no harm: the
// next search begins at the match's end, where those that are left of it lead to a match without a character, and no
// pattern matches that.
bool PatternMatcher::Search::is_new(std::uint32_t step, std::size_t at) {
  const std::size_t bit = (at - marks_begin_) * matcher_.steps_.size() + step;
  if (bit / 64 >= marks_.size()) marks_.resize(std::max(bit / 64 + 1, 2 * marks_.size()));
  std::uint64_t& word = marks_[bit / 64];
  const std::uint64_t mark = std::uint64_t{1} << bit % 64;
  if ((word & mark) != 0) return false;
  word |= mark;
  furthest_ = std::max(furthest_, at);
  return true;
}

std::optional<std::size_t> PatternMatcher::Search::end_from(std::size_t begin) {
  if (begin >= furthest_) {  // no mark is needed any more
    const std::size_t used = (furthest_ - marks_begin_ + 1) * matcher_.steps_.size() / 64 + 1;
    std::fill_n(marks_.begin(), std::min(used, marks_.size()), 0);
    marks_begin_ = furthest_ = begin;
  }
  untried_.assign(1, {0, begin});
  while (!untried_.empty()) {
    auto [i_step, at] = untried_.back();
    untried_.pop_back();
    while (is_new(i_step, at)) {
      const Step& step = matcher_.steps_[i_step++];
      const auto is_next = [&](std::size_t place) {
        return place < text_.size() && matcher_.sets_[step.first].contains(text_[place]);
      };
      bool goes_on = true;
      switch (step.kind) {
        case Kind::kCharacters:
          for (std::uint32_t i = 0; i < step.n && goes_on; ++i) goes_on = is_next(at + i);
          at += goes_on ? step.n : 0;
          break;
        case Kind::kAhead:
          goes_on = is_next(at);
          break;
        case Kind::kNotAhead:
          goes_on = !is_next(at);
          break;
        case Kind::kEnd:
          goes_on = at == text_.size();
          break;
        case Kind::kEither:
          untried_.push_back({step.second, at});
          i_step = step.first;
          break;
        case Kind::kJump:
          i_step = step.first;
          break;
        case Kind::kMatch:
          return at;
      }
      if (!goes_on) break;
    }
  }
  return std::nullopt;
}

}  // namespace winnow
