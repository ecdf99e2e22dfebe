#include "text/word_splitter.h"

#include <string>
#include <utility>

#include "base/utf8.h"
#include "schema/character_set.h"
#include "schema/pattern.h"

namespace winnow {
namespace {

using Ends = std::vector<std::size_t>;  // of words, in characters

// Unicode's white space beyond ASCII is one character to libllama, and no other character is white space.
constexpr char32_t kOtherSpace = U'\v', kNoSpace = 0xFFFE;

char32_t character_for_patterns(char32_t character) {
  static const CharacterSet spaces = [] {
    CharacterSet set = CharacterSet::named("Z").value();
    set.add({{0x85, 0x85}});
    return set;
  }();
  if (character < 0x80) return character;
  if (spaces.contains(character)) return kOtherSpace;
  return character == 0xFEFF ? kNoSpace : character;  // \s has it in ECMAScript
}

void split_by(const PatternMatcher& matcher, std::u32string_view word, std::size_t begin, Ends& ends) {
  PatternMatcher::Search search(matcher, word);
  std::size_t end = 0;
  while (const auto match = search.next()) {
    if (match->begin > end) ends.push_back(begin + match->begin);
    end = match->end;
    ends.push_back(begin + end);
  }
  if (end < word.size()) ends.push_back(begin + word.size());
}

bool is_digit(char32_t character, WordRule::Kind kind) {
  static const CharacterSet numbers = CharacterSet::named("N").value();
  if (character < 0x80) return character >= U'0' && character <= U'9';
  return kind == WordRule::Kind::kThreesOfAllDigits && numbers.contains(character);
}

void split_threes(WordRule::Kind kind, std::u32string_view word, std::size_t begin, Ends& ends) {
  std::size_t last = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t number = at;
    while (at < word.size() && is_digit(word[at], kind)) ++at;
    for (std::size_t end = number + (at - number) % 3; end <= at; end += 3) {
      const bool is_left_out = kind == WordRule::Kind::kThreesOfAllDigits ? end == number : end == at;
      if (end > last && !is_left_out) ends.push_back(begin + (last = end));
    }
    if (at < word.size()) ++at;
  }
  if (last < word.size()) ends.push_back(begin + word.size());
}

}  // namespace

WordSplitter::WordSplitter(std::span<const WordRule> rules) {
  for (const WordRule& rule : rules) {
    if (rule.kind == WordRule::Kind::kPattern) {
      rules_.emplace_back(PatternMatcher(Pattern::parse(rule.pattern)));
    } else {
      rules_.emplace_back(rule.kind);
    }
  }
}

std::vector<std::size_t> WordSplitter::ends(std::string_view text) const {
  if (text.empty()) return {};
  std::u32string characters;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = first_character(text.substr(at));
    characters.push_back(character_for_patterns(step.character));
    at += step.n_bytes;
  }
  Ends ends = {characters.size()};
  for (const Rule& rule : rules_) {
    const Ends words = std::exchange(ends, {});
    std::size_t begin = 0;
    for (const std::size_t end : words) {
      const std::u32string_view word = std::u32string_view(characters).substr(begin, end - begin);
      if (const auto* matcher = std::get_if<PatternMatcher>(&rule)) {
        split_by(*matcher, word, begin, ends);
      } else {
        split_threes(std::get<WordRule::Kind>(rule), word, begin, ends);
      }
      begin = end;
    }
  }
  std::size_t n = 0, bytes = 0;
  for (std::size_t& end : ends) {
    for (; n < end; ++n) bytes += first_character(text.substr(bytes)).n_bytes;
    end = bytes;
  }
  return ends;
}

}  // namespace winnow
