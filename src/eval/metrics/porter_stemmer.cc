// M. F. Porter, "An algorithm for suffix stripping", 1980: the numbers of the steps are the paper's.
#include "eval/metrics/porter_stemmer.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace winnow::eval {
namespace {

bool is_vowel_letter(char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; }

// A y is a consonant at the beginning and after a vowel.
bool is_consonant(std::string_view word, std::size_t i) {
  bool consonant = false;
  for (std::size_t k = 0; k <= i; ++k) consonant = word[k] == 'y' ? k == 0 || !consonant : !is_vowel_letter(word[k]);
  return consonant;
}

// Returns m of [C](VC){m}[V].
int measure(std::string_view stem) {
  int m = 0;
  bool before = true;
  for (std::size_t i = 0; i < stem.size(); ++i) {
    const bool now = is_consonant(stem, i);
    if (i > 0 && now && !before) ++m;
    before = now;
  }
  return m;
}

bool contains_vowel(std::string_view stem) {
  for (std::size_t i = 0; i < stem.size(); ++i) {
    if (!is_consonant(stem, i)) return true;
  }
  return false;
}

bool ends_double_consonant(std::string_view word) {
  const std::size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1);
}

// Returns true for the paper's condition *o, and for NLTK's extension of it to words of two letters.
bool ends_cvc(std::string_view word) {
  const std::size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  return n >= 3 && is_consonant(word, n - 3) && !is_consonant(word, n - 2) && is_consonant(word, n - 1) &&
         std::string_view("wxy").find(word[n - 1]) == std::string_view::npos;
}

struct Rule {
  std::string_view suffix, replacement;
};

// Applies the first rule whose suffix fits; no other rule is tried.
template <typename Allowed>
void apply_first(std::string& word, std::span<const Rule> rules, Allowed allowed) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string stem = word.substr(0, word.size() - rule.suffix.size());
    if (allowed(rule, stem)) word = stem + std::string(rule.replacement);
    return;
  }
}

constexpr Rule kStep1a[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
constexpr Rule kStep2[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
                           {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
                           {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                           {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
                           {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
                           {"fulli", "ful"},   {"logi", "log"}};
constexpr Rule kStep3[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                           {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
constexpr Rule kStep4[] = {{"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},    {"ic", ""},
                           {"able", ""}, {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""},
                           {"ent", ""},  {"ion", ""},  {"ou", ""},   {"ism", ""},   {"ate", ""},
                           {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""}};

void step1a(std::string& word) {
  if (word.ends_with("ies") && word.size() == 4) {
    word.pop_back();
    return;
  }
  apply_first(word, kStep1a, [](const Rule&, const std::string&) { return true; });
}

void step1b(std::string& word) {
  if (word.ends_with("ied")) {
    word.resize(word.size() - (word.size() == 4 ? 1 : 2));
    return;
  }
  if (word.ends_with("eed")) {
    if (measure(std::string_view(word).substr(0, word.size() - 3)) > 0) word.pop_back();
    return;
  }
  const std::size_t n_suffix = word.ends_with("ed") ? 2 : word.ends_with("ing") ? 3 : 0;
  if (n_suffix == 0 || !contains_vowel(std::string_view(word).substr(0, word.size() - n_suffix))) return;
  word.resize(word.size() - n_suffix);
  if (word.ends_with("at") || word.ends_with("bl") || word.ends_with("iz")) {
    word += 'e';
  } else if (ends_double_consonant(word)) {
    if (std::string_view("lsz").find(word.back()) == std::string_view::npos) word.pop_back();
  } else if (measure(word) == 1 && ends_cvc(word)) {
    word += 'e';
  }
}

void step1c(std::string& word) {
  if (word.ends_with('y') && word.size() > 2 && is_consonant(word, word.size() - 2)) word.back() = 'i';
}

void step2(std::string& word) {
  if (word.ends_with("alli") && measure(std::string_view(word).substr(0, word.size() - 4)) > 0) {
    word.resize(word.size() - 2);
    return step2(word);
  }
  apply_first(word, kStep2, [](const Rule& rule, const std::string& stem) {
    return measure(rule.suffix == "logi" ? stem + "l" : stem) > 0;
  });
}

void step5(std::string& word) {
  if (word.ends_with('e')) {
    const std::string_view stem = std::string_view(word).substr(0, word.size() - 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(std::string_view(word).substr(0, word.size() - 1)) > 1) word.pop_back();
}

constexpr std::pair<std::string_view, std::string_view> kIrregular[] = {
    {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
    {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
    {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
    {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};

}  // namespace

std::string porter_stem(std::string word) {
  for (const auto& [form, stem] : kIrregular) {
    if (word == form) return std::string(stem);
  }
  if (word.size() <= 2) return word;
  step1a(word);
  step1b(word);
  step1c(word);
  step2(word);
  apply_first(word, kStep3, [](const Rule&, const std::string& stem) { return measure(stem) > 0; });
  apply_first(word, kStep4, [](const Rule& rule, const std::string& stem) {
    return measure(stem) > 1 && (rule.suffix != "ion" || stem.ends_with('s') || stem.ends_with('t'));
  });
  step5(word);
  return word;
}

}  // namespace winnow::eval
