#include <algorithm>
#include <optional>

#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

std::vector<Text> labels_of(const Turn& turn) {
  std::vector<Text> labels;
  for (const std::string& reference : turn.references) labels.push_back(decode(reference));
  return labels;
}

bool is_one_of(const std::vector<Text>& labels, TextView text) {
  return std::find(labels.begin(), labels.end(), text) != labels.end();
}

// Replaces each of `parts` by a space, and several spaces by one.
Text spaced(Text text, std::initializer_list<TextView> parts) {
  for (const TextView part : parts) text = replace_all(std::move(text), part, U" ");
  const auto end = std::unique(text.begin(), text.end(), [](char32_t a, char32_t b) { return a == ' ' && b == ' '; });
  text.erase(end, text.end());
  return text;
}

// Returns whether one of the labels begins one character after the first prefix that occurs; nullopt if none occurs.
std::optional<bool> behind_prefix(TextView text, std::initializer_list<TextView> prefixes,
                                  const std::vector<Text>& labels) {
  for (const TextView prefix : prefixes) {
    const std::size_t at = text.find(prefix);
    if (at == TextView::npos) continue;
    if (text.size() < at + prefix.size() + 1) return false;
    const TextView rest = text.substr(at + prefix.size() + 1);
    return std::any_of(labels.begin(), labels.end(), [&](const Text& label) { return rest.starts_with(label); });
  }
  return {};
}

}  // namespace

double multiple_choice(const Turn& turn, TextView answer) {
  const std::vector<Text> labels = labels_of(turn);
  constexpr TextView kLetters = U"ABCD";
  if (answer.empty()) return 0;
  if (kLetters.find(answer[0]) != TextView::npos) return is_one_of(labels, answer.substr(0, 1)) ? 1 : 0;
  if (is_one_of(labels, answer)) return 1;
  const Text text = spaced(Text(answer), {U"\n", U"\"", U"'", U".", U",", U"?", U"!", U"{", U"}"});
  if (const auto found = behind_prefix(text, {U"answer is:", U"answer:", U"answer is", U"option is"}, labels)) {
    return *found ? 1 : 0;
  }
  for (const Text& word : split(text)) {
    if (kLetters.find(word) != TextView::npos) return is_one_of(labels, word) ? 1 : 0;
  }
  return 0;
}

double multiple_choice_stripped(const Turn& turn, TextView answer) { return multiple_choice(turn, strip(answer)); }

double faulty_function(const Turn& turn, TextView answer) {
  const std::vector<Text> labels = labels_of(turn);
  if (labels.size() < 2) return 0;
  const Text& letter = labels[1];
  if (answer.starts_with(letter + U".") || answer.starts_with(letter + U":")) return 1;
  const Text text = spaced(Text(strip(answer)), {U"\n", U"`", U"'", U"\"", U"-", U"*", U"Option", U"option"});
  // "correct option is:" of the specification cannot occur once "option" is a space, but "is:" does.
  return behind_prefix(text, {U"answer is:", U"is:", U"answer:", U"correct option is:"}, labels).value_or(false) ? 1
                                                                                                                 : 0;
}

double boxed(const Turn& turn, TextView answer) {
  constexpr TextView kBoxed = U"\\boxed{";
  const std::size_t at = answer.rfind(kBoxed);
  if (at == TextView::npos || turn.references.empty()) return 0;
  // The box ends at the brace that closes it; \text{...} may be inside.
  std::size_t end = at + kBoxed.size();
  for (int depth = 1; end < answer.size(); ++end) {
    depth += answer[end] == '{' ? 1 : answer[end] == '}' ? -1 : 0;
    if (depth == 0) break;
  }
  if (end == answer.size()) return 0;
  Text text(answer.substr(at + kBoxed.size(), end - at - kBoxed.size()));
  text = join(split(replace_all(std::move(text), U"\\text", U"")), U" ");
  std::erase_if(text, [](char32_t c) { return TextView(U"'\"\\{}").find(c) != TextView::npos; });
  text = replace_all(std::move(text), U"~", U" ");
  return encode(strip(text)) == turn.references[0] ? 1 : 0;
}

}  // namespace winnow::eval
