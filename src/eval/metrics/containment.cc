#include <algorithm>
#include <cmath>

#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

bool contains(TextView text, TextView part) { return text.find(part) != TextView::npos; }

// Returns how many references, changed by `change`, the text contains.
template <typename Change>
std::size_t n_contained(const Turn& turn, TextView text, Change change) {
  return static_cast<std::size_t>(
      std::count_if(turn.references.begin(), turn.references.end(),
                    [&](const std::string& reference) { return contains(text, change(decode(reference))); }));
}

double share(std::size_t n, const Turn& turn) {
  return turn.references.empty() ? 0 : static_cast<double>(n) / static_cast<double>(turn.references.size());
}

// RULER strips an answer, turns control characters into line ends, and strips again.
Text ruler_answer(TextView answer) {
  Text text(strip(answer));
  for (char32_t& c : text) {
    if (c < 0x20) c = '\n';
  }
  return lower(strip(text));
}

// Returns the words between white space and the characters that InfiniteBench replaces by it.
std::vector<Text> words_between_marks(TextView answer) {
  Text text(answer);
  for (char32_t& c : text) {
    if (contains(U"\n:\"'.,?!{}", TextView(&c, 1))) c = ' ';
  }
  return split(text);
}

bool is_reference(const Turn& turn, const std::vector<Text>& words) {
  return !turn.references.empty() && std::find(words.begin(), words.end(), decode(turn.references[0])) != words.end();
}

}  // namespace

double classification(const Turn& turn, TextView answer) {
  if (turn.references.empty()) return 0;
  std::vector<Text> found;
  for (const std::string& name : turn.classes) {
    if (Text text = decode(name); contains(answer, text)) found.push_back(std::move(text));
  }
  double best = 0;
  for (const std::string& reference : turn.references) {
    const Text truth = decode(reference);
    std::vector<Text> kept = found;
    // LongBench removes entries from the list that it walks through, so it skips the entry after a removed one. It
    // removes the first equal entry.
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (contains(truth, kept[i]) && kept[i] != truth) kept.erase(std::find(kept.begin(), kept.end(), kept[i]));
    }
    if (std::find(kept.begin(), kept.end(), truth) != kept.end()) {
      best = std::max(best, 1.0 / static_cast<double>(kept.size()));
    }
  }
  return best;
}

double share_contained(const Turn& turn, TextView answer) {
  return share(n_contained(turn, ruler_answer(answer), lower), turn);
}

double any_contained(const Turn& turn, TextView answer) {
  return n_contained(turn, ruler_answer(answer), lower) > 0 ? 1 : 0;
}

double share_contained_2(const Turn& turn, TextView answer) {
  return std::nearbyint(100 * share(n_contained(turn, lower(answer), lower), turn)) / 100;
}

double any_contained_upper(const Turn& turn, TextView answer) {
  return n_contained(turn, upper(strip(answer)), upper) > 0 ? 1 : 0;
}

double first_contained(const Turn& turn, TextView answer) {
  return !turn.references.empty() && contains(answer, decode(turn.references[0])) ? 1 : 0;
}

double share_contained_exact(const Turn& turn, TextView answer) {
  return share(n_contained(turn, answer, [](const Text& text) { return text; }), turn);
}

double word_among(const Turn& turn, TextView answer) { return is_reference(turn, words_between_marks(answer)) ? 1 : 0; }

double upper_word_among(const Turn& turn, TextView answer) {
  std::vector<Text> words = words_between_marks(answer);
  for (Text& word : words) word = upper(word);
  return is_reference(turn, words) ? 1 : 0;
}

}  // namespace winnow::eval
