// Long words in windows: libllama's std::regex recurses once a character, so that a text goes to it in pieces that are
// short enough, and a word that is longer in windows that overlap.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "schema/character_set.h"
#include "text/tokenizer.h"

namespace winnow {
namespace {

bool is_white_space(char32_t character) {
  static const CharacterSet spaces = [] {
    CharacterSet set = CharacterSet::named("Z").value();
    set.add({{'\t', '\r'}, {0x85, 0x85}});
    return set;
  }();
  return spaces.contains(character);
}

// Returns for each place of a text, the end included, whether it is inside a group of three digits. Groups begin with a
// number, or with the text; those of ASCII's digits after other digits do if `ascii_alone`.
std::vector<bool> places_in_groups(std::string_view text, bool ascii_alone) {
  std::vector<bool> inside(text.size() + 1);
  std::size_t n_digits = 0, n_ascii_digits = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = WordBreaks::digit_bytes(text.substr(at));
    inside[at] = n > 0 && (ascii_alone && n == 1 ? n_ascii_digits : n_digits) % 3 != 0;
    n_digits = n > 0 ? n_digits + 1 : 0;
    n_ascii_digits = n == 1 ? n_ascii_digits + 1 : 0;
    at += n > 0 ? n : first_character(text.substr(at)).n_bytes;
  }
  return inside;
}

// Returns the last beginning of a character at or before `at`, which is in the text or its end.
std::size_t character_begin(std::string_view text, std::size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool is_line_end(char32_t character) { return character == '\n' || character == '\r'; }

bool is_sign(char32_t character) {
  static const CharacterSet others = [] {
    CharacterSet set = CharacterSet::named("L").value();
    set.add(CharacterSet::named("N").value());
    return set;
  }();
  return !is_white_space(character) && !others.contains(character);
}

// Returns the place of the sign before a place, or the place itself if another character is there.
std::size_t behind_sign(std::string_view text, std::size_t at) {
  const std::size_t before = character_begin(text, at - 1);
  return is_sign(first_character(text.substr(before)).character) ? before : at;
}

// Returns true if the character before a place is white space.
bool follows_space(std::string_view text, std::size_t at) {
  return at > 0 && is_white_space(first_character(text.substr(character_begin(text, at - 1))).character);
}

// Returns the bytes of a word's beginning in the order in which they are tried: all of them, those before its last ends
// of lines, and a few characters fewer or more than these.
std::vector<std::size_t> lengths_of(std::string_view beginning) {
  std::vector<std::size_t> lengths = {beginning.size()};
  const std::size_t n = beginning.find_last_not_of("\r\n") + 1;
  std::size_t fewer = n, more = n;
  for (int i = 0; i < 3 && n > 0; ++i) {
    for (const std::size_t length : {fewer, more}) {
      if (length > 0 && length < beginning.size() && length != lengths.back()) lengths.push_back(length);
    }
    if (fewer > 0) fewer = character_begin(beginning, fewer - 1);
    if (more < beginning.size()) more += first_character(beginning.substr(more)).n_bytes;
  }
  return lengths;
}

}  // namespace

bool Tokenizer::is_too_deep(std::string_view piece) const {
  return is_of_byte_pairs_ && breaks_.recurse() && piece.size() > window_bytes_;
}

// Returns the number of bytes up to the end of each token, or none if the tokens do not spell the text, as in
// vocabularies that lack bytes.
std::vector<std::size_t> Tokenizer::ends_of(const std::vector<Token>& tokens, std::string_view text) const {
  std::vector<std::size_t> ends;
  ends.reserve(tokens.size());
  std::size_t end = 0;
  for (const Token token : tokens) ends.push_back(end += token_text(token, true).size());
  return end == text.size() ? ends : std::vector<std::size_t>();
}

// Returns the tokens of `text` after `head`, or none if a token spans both.
std::vector<Token> Tokenizer::tokens_behind(std::string_view head, std::string_view text, bool parse_special) const {
  std::vector<Token> tokens = tokens_of(std::string(head) + std::string(text), false, parse_special);
  std::size_t n = 0, n_bytes = 0;
  while (n < tokens.size() && n_bytes < head.size()) n_bytes += token_text(tokens[n++], true).size();
  if (n_bytes != head.size()) return {};
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
  return tokens;
}

// Words of letters, signs or digits are taken to begin with the window, so one of white space is looked for. Ends of
// lines before other white space are no part of it: they are words of their own (spark2_5), or its tokens do not depend
// on them. Ends of lines behind a sign may belong to its word, so that other white space behind them does not (llama3).
std::string_view Tokenizer::head_of(std::string_view piece, std::size_t begin, std::size_t place,
                                    const std::vector<Token>& window, std::string_view head) const {
  std::size_t word = begin;
  bool is_inside = false, is_all_lines = false;  // in white space; in ends of lines with no other white space before
  for (std::size_t at = begin; at < place;) {
    const Utf8Step step = first_character(piece.substr(at));
    const bool is_line = is_line_end(step.character);
    if (!is_inside || (is_all_lines && !is_line)) word = is_line && at > begin ? behind_sign(piece, at) : at;
    is_all_lines = is_line && (is_all_lines || !is_inside);
    is_inside = is_white_space(step.character);
    at += step.n_bytes;
  }
  if (!is_inside) word = begin;
  const bool began_before = word == begin && (!is_inside || follows_space(piece, begin));
  if (began_before && !head.empty()) return head;
  std::size_t last = word;
  if (is_inside) {
    while (last < std::min(word + window_bytes_ / 8, place)) {
      const Utf8Step step = first_character(piece.substr(last));
      if (last > word && !is_white_space(step.character)) break;
      last += step.n_bytes;
    }
    return piece.substr(word, last - word);
  }
  for (const Token token : window) {
    if (last >= begin + window_bytes_ / 8 && character_begin(piece, last) == last) break;
    last += token_text(token, true).size();
  }
  return piece.substr(begin, character_begin(piece, std::min(last, begin + window_bytes_ / 4)) - begin);
}

// Returns the window at the first place where it has all the tokens that this window has up to its last quarter. If
// there is none, as inside a group of three digits, the place with the most common tokens is taken. How a word goes on
// may depend on how it begins (spark2_5: a line's end is a word, but not after a space), so the places are tried a
// second time with their head before the text, or with less of it where a token would span both. If the difference may
// show in later windows alone, the head comes first. Inside a number, only places after a multiple of three of its
// digits count, since many kinds cut numbers into groups of three, which tokens of single digits do not show.
Tokenizer::Window Tokenizer::next_window(std::string_view piece, std::string_view head, std::size_t begin,
                                         std::size_t end, const std::vector<Token>& window, bool parse_special) const {
  constexpr int kMostTries = 8;
  const std::size_t eighth = (end - begin) / 8;
  const std::vector<std::size_t> ends = ends_of(window, piece.substr(begin, end - begin));
  Window best{window.size(), end, {}, {}, head_of(piece, begin, end, window, head)};
  std::size_t most_same = 0;
  const auto n_up_to = [&](std::size_t bytes) {
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), bytes) - ends.begin());
  };
  const std::size_t n_places = n_up_to(5 * eighth), n_sure = n_up_to(6 * eighth);
  const std::vector<bool> is_in_group =
      places_in_groups(piece.substr(begin, end - begin), breaks_.groups_ascii_alone());
  for (const bool is_second : {false, true}) {
    std::size_t i = n_up_to(4 * eighth - 1);
    for (int n_tries = 0; n_tries < kMostTries && i < n_places; ++i) {
      const std::size_t at = begin + ends[i];
      if (character_begin(piece, at) != at || is_in_group[ends[i]]) continue;
      ++n_tries;
      const std::size_t stop = character_begin(piece, std::min(at + window_bytes_, piece.size()));
      const std::string_view own = head_of(piece, begin, at, window, head);
      // White space that begins with no line's end, or behind a sign, may show in later windows alone how it began.
      const bool comes_first = follows_space(piece, at) && !is_line_end(first_character(own).character);
      const std::string_view beginning = comes_first != is_second ? own : std::string_view();
      std::string_view before;
      std::vector<Token> next;
      for (const std::size_t n : lengths_of(beginning)) {  // where a token spans both, the next one is taken
        before = beginning.substr(0, n);
        next = tokens_behind(before, piece.substr(at, stop - at), parse_special);
        if (!next.empty()) break;
      }
      const auto due = std::span(window).subspan(i + 1, n_sure - i - 1);
      const auto same = std::mismatch(due.begin(), due.end(), next.begin(), next.end()).first;
      const auto n_same = static_cast<std::size_t>(same - due.begin());
      const bool is_like_it = n_same == due.size();
      if (best.tokens.empty() || n_same > most_same || is_like_it) best = {i + 1, at, before, std::move(next), own};
      most_same = std::max(most_same, n_same);
      if (is_like_it) return best;
    }
  }
  return best;
}

// A window that ends where a word certainly begins has the tokens of the whole text. In a word that is longer than a
// window, each window begins between two tokens in the middle of the one before. How the byte pairs of a word are
// merged on one side of such a place does not depend on the other side, so the tokens from there on are again those of
// the whole text, except for the last ones of a window, which the next window replaces. The tokens that both windows
// share are compared to verify this.
std::vector<Token> Tokenizer::piece_tokens(std::string_view piece, bool parse_special) const {
  if (!is_too_deep(piece)) return tokens_of(piece, false, parse_special);
  const bool has_breaks = specials().are_apart_from_words;
  std::vector<Token> tokens;
  const auto take = [&](const std::vector<Token>& more, std::size_t n) {
    tokens.insert(tokens.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(n));
  };
  Window window;
  WordBreaks::Number number;
  for (std::size_t begin = 0; begin < piece.size();) {
    const std::size_t end = character_begin(piece, std::min(begin + window_bytes_, piece.size()));
    const std::size_t at = has_breaks ? breaks_.last(piece, begin, end, number) : begin;
    const std::size_t stop = at > begin ? at : end;
    if (at > begin || window.tokens.empty()) {
      const std::string_view text = piece.substr(begin, stop - begin);
      window.tokens = tokens_behind(window.before, text, parse_special);
      if (window.tokens.empty()) window.tokens = tokens_of(text, false, parse_special);
    }
    if (at > begin || end == piece.size()) {
      take(window.tokens, window.tokens.size());
      window = {};
      begin = stop;
      continue;
    }
    Window next = next_window(piece, window.head, begin, end, window.tokens, parse_special);
    take(window.tokens, next.n_tokens_before);
    begin = next.begin;
    window = std::move(next);
  }
  return tokens;
}

}  // namespace winnow
