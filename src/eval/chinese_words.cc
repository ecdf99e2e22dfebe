#include "eval/chinese_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "base/fnv1a.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include "eval/sample.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr double kNever = -3.14e100;  // jieba's logarithm of a probability of 0
// Positions in a word: begin, end, middle, single. They are in the order of jieba's letters, which breaks ties.
constexpr std::array<char, 4> kStates = {'B', 'E', 'M', 'S'};
constexpr std::size_t kB = 0, kE = 1, kM = 2, kS = 3;
// The two states that may come before each of B, E, M, S, in that order, too.
constexpr std::array<std::array<std::size_t, 2>, 4> kBefore = {{{kE, kS}, {kB, kM}, {kB, kM}, {kE, kS}}};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

bool is_ascii_word(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_ascii_digit(c); }

// Returns true for characters that jieba looks up in its dictionary; others are words by themselves.
bool is_dictionary_character(char32_t c) {
  return is_han(c) || is_ascii_word(c) || TextView(U"+#&._%-").find(c) != TextView::npos;
}

// Calls take(run, matches) for every maximal run of characters for which `test` is the same.
template <typename Take>
void for_runs(TextView text, bool (*test)(char32_t), Take take) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && test(text[end]) == test(text[begin])) ++end;
    take(text.substr(begin, end - begin), test(text[begin]));
    begin = end;
  }
}

std::string file_text(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(ErrorCode::kNotFound,
                "there is no '" + path.string() +
                    "': name the folder of the Python package jieba 0.42.1, which holds dict.txt and finalseg/");
  }
  return read_input(path.string(), input::kText);
}

// Reads the numbers of the text of a file that is a Python dictionary of numbers or of such dictionaries: calls
// put(outer key, key, number) for each.
template <typename Put>
void read_numbers(const std::filesystem::path& path, const std::string& text, Put put) {
  const auto refuse = [&] { throw Error(ErrorCode::kBadFile, "'" + path.string() + "' is not jieba's model"); };
  std::string outer, key;
  std::size_t at = text.find('{');
  int depth = 0, n_numbers = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{') {
      if (++depth == 2) outer = key;
    } else if (c == '}') {
      --depth;
    } else if (c == '\'') {
      const std::size_t end = text.find('\'', at + 1);
      if (end == std::string::npos) refuse();
      key = text.substr(at + 1, end - at - 1);
      if (key.starts_with("\\u") && key.size() == 6) {
        std::uint32_t code = 0;
        std::from_chars(key.data() + 2, key.data() + 6, code, 16);
        key = encode(Text(1, static_cast<char32_t>(code)));
      }
      at = end;
    } else if (c == '-' || is_ascii_digit(static_cast<unsigned char>(c))) {
      double number = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (error != std::errc()) refuse();
      put(outer, key, number);
      at = static_cast<std::size_t>(end - text.data()) - 1;
      ++n_numbers;
    }
  }
  if (depth != 0 || n_numbers == 0) refuse();
}

std::size_t state_of(const std::string& name, const std::filesystem::path& path) {
  const auto found = name.size() == 1 ? std::find(kStates.begin(), kStates.end(), name[0]) : kStates.end();
  if (found == kStates.end()) throw Error(ErrorCode::kBadFile, "'" + path.string() + "' is not jieba's model");
  return static_cast<std::size_t>(found - kStates.begin());
}

}  // namespace

struct Jieba::Tables {
  // Frequency of every word, and of every prefix of a word; 0 for a prefix that is no word itself.
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> frequency;
  double log_total = 0;
  std::array<double, 4> start;
  std::array<std::array<double, 4>, 4> transition;
  std::array<std::unordered_map<char32_t, double>, 4> emission;
  Fnv1a hash;  // of all files

  std::string read(const std::filesystem::path& path) {
    std::string text = file_text(path);
    hash.add(text);
    return text;
  }
  void read_dictionary(const std::filesystem::path& path);
  void read_model(const std::filesystem::path& folder);
  void cut_block(TextView block, std::vector<Text>& words) const;
  void cut_unknown(TextView text, std::vector<Text>& words) const;
  void cut_by_model(TextView han, std::vector<Text>& words) const;
};

void Jieba::Tables::read_dictionary(const std::filesystem::path& path) {
  std::istringstream lines(read(path));
  std::int64_t total = 0;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t end = line.find(' ');
    std::int64_t count = 0;
    if (end == 0 || end == std::string::npos ||
        std::from_chars(line.data() + end + 1, line.data() + line.size(), count).ec != std::errc()) {
      throw Error(ErrorCode::kBadFile,
                  "'" + path.string() + "', line " + std::to_string(number) + ": not a word and its frequency");
    }
    const std::string word = line.substr(0, end);
    frequency[word] = count;
    total += count;
    for (std::size_t length = 1; length < word.size(); ++length) {
      if (whole_characters(word, length) == length) frequency.try_emplace(word.substr(0, length), 0);
    }
  }
  if (total <= 0) throw Error(ErrorCode::kBadFile, "'" + path.string() + "' holds no words");
  log_total = std::log(static_cast<double>(total));
}

void Jieba::Tables::read_model(const std::filesystem::path& folder) {
  start.fill(kNever);
  for (auto& row : transition) row.fill(kNever);
  std::filesystem::path path = folder / "prob_start.py";
  read_numbers(path, read(path), [&](const std::string&, const std::string& state, double value) {
    start[state_of(state, path)] = value;
  });
  path = folder / "prob_trans.py";
  read_numbers(path, read(path), [&](const std::string& from, const std::string& to, double value) {
    transition[state_of(from, path)][state_of(to, path)] = value;
  });
  path = folder / "prob_emit.py";
  read_numbers(path, read(path), [&](const std::string& state, const std::string& character, double value) {
    emission[state_of(state, path)][decode(character)[0]] = value;
  });
}

// Takes the most probable path through the graph of dictionary words. Runs of single characters go to the model, which
// knows names and other words that no dictionary has.
void Jieba::Tables::cut_block(TextView block, std::vector<Text>& words) const {
  const std::size_t n = block.size();
  std::string utf8;
  std::vector<std::size_t> offset;
  for (const char32_t c : block) {
    offset.push_back(utf8.size());
    utf8 += encode(TextView(&c, 1));
  }
  offset.push_back(utf8.size());

  std::vector<double> best(n + 1, 0);
  std::vector<std::size_t> end_of(n + 1, 0);
  for (std::size_t begin = n; begin-- > 0;) {
    bool any = false;
    const auto consider = [&](std::size_t end, std::int64_t count) {
      const double value = std::log(static_cast<double>(std::max<std::int64_t>(count, 1))) - log_total + best[end];
      if (any && value < best[begin]) return;  // the longest of equals wins
      best[begin] = value;
      end_of[begin] = end;
      any = true;
    };
    for (std::size_t end = begin + 1; end <= n; ++end) {
      const auto found = frequency.find(std::string_view(utf8).substr(offset[begin], offset[end] - offset[begin]));
      if (found == frequency.end()) break;
      if (found->second > 0) consider(end, found->second);
    }
    if (!any) consider(begin + 1, 0);
  }

  std::size_t unknown = 0;  // beginning of the run of single characters
  const auto end_run = [&](std::size_t end) {
    const TextView run = block.substr(unknown, end - unknown);
    const auto found = frequency.find(std::string_view(utf8).substr(offset[unknown], offset[end] - offset[unknown]));
    if (run.size() == 1 || (found != frequency.end() && found->second > 0)) {
      for (const char32_t c : run) words.emplace_back(1, c);
    } else if (!run.empty()) {
      cut_unknown(run, words);
    }
  };
  std::size_t at = 0;
  for (; at < n; at = end_of[at]) {
    if (end_of[at] - at == 1) continue;
    end_run(at);
    words.emplace_back(block.substr(at, end_of[at] - at));
    unknown = end_of[at];
  }
  end_run(n);
}

// Splits a run of single characters: Han characters by the model; ASCII words, and numbers with decimals and a percent
// sign, stay together.
void Jieba::Tables::cut_unknown(TextView text, std::vector<Text>& words) const {
  for_runs(text, is_han, [&](TextView run, bool han) {
    if (han) return cut_by_model(run, words);
    Text other;
    const auto end_other = [&] {
      if (!other.empty()) words.push_back(std::move(other));
      other.clear();
    };
    for (std::size_t begin = 0; begin < run.size();) {
      std::size_t end = begin;
      while (end < run.size() && is_ascii_word(run[end])) ++end;
      if (end == begin) {
        other += run[begin++];
        continue;
      }
      std::size_t decimals = end + 1;
      while (end < run.size() && run[end] == '.' && decimals < run.size() && is_ascii_digit(run[decimals])) ++decimals;
      if (end < run.size() && run[end] == '.' && decimals > end + 1) end = decimals;
      if (end < run.size() && run[end] == '%') ++end;
      end_other();
      words.emplace_back(run.substr(begin, end - begin));
      begin = end;
    }
    end_other();
  });
}

void Jieba::Tables::cut_by_model(TextView han, std::vector<Text>& words) const {
  const auto emitted = [&](std::size_t state, char32_t c) {
    const auto found = emission[state].find(c);
    return found == emission[state].end() ? kNever : found->second;
  };
  const std::size_t n = han.size();
  std::vector<std::array<double, 4>> value(n);
  std::vector<std::array<std::size_t, 4>> from(n);
  for (std::size_t state = 0; state < 4; ++state) value[0][state] = start[state] + emitted(state, han[0]);
  for (std::size_t t = 1; t < n; ++t) {
    for (std::size_t state = 0; state < 4; ++state) {
      const double here = emitted(state, han[t]);
      const auto reached = [&](std::size_t before) { return value[t - 1][before] + transition[before][state] + here; };
      const auto [low, high] = kBefore[state];
      const std::size_t before = reached(high) >= reached(low) ? high : low;  // Python's max of (value, letter)
      value[t][state] = reached(before);
      from[t][state] = before;
    }
  }
  std::size_t state = value[n - 1][kS] >= value[n - 1][kE] ? kS : kE;
  std::vector<std::size_t> states(n);
  for (std::size_t t = n; t-- > 0; state = from[t][state]) states[t] = state;

  std::size_t next = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (states[i] == kB || states[i] == kS) begin = i;
    if (states[i] == kE || states[i] == kS) {
      words.emplace_back(han.substr(begin, i + 1 - begin));
      next = i + 1;
    }
  }
  if (next < n) words.emplace_back(han.substr(next));
}

Jieba::Jieba(const std::string& folder) {
  auto tables = std::make_unique<Tables>();
  tables->read_dictionary(std::filesystem::path(folder) / "dict.txt");
  tables->read_model(std::filesystem::path(folder) / "finalseg");
  tables_ = std::move(tables);
}

Jieba::~Jieba() = default;

std::string Jieba::digest() const { return hex_text(tables_->hash.value()); }

std::vector<Text> Jieba::cut(TextView text) const {
  std::vector<Text> words;
  for_runs(text, is_dictionary_character, [&](TextView run, bool known) {
    if (known) return tables_->cut_block(run, words);
    for (std::size_t i = 0; i < run.size(); ++i) {
      const std::size_t length = run.substr(i, 2) == U"\r\n" ? 2 : 1;
      words.emplace_back(run.substr(i, length));
      i += length - 1;
    }
  });
  return words;
}

namespace {

std::shared_ptr<const Jieba>& installed() {
  static std::shared_ptr<const Jieba> jieba;
  return jieba;
}

}  // namespace

void set_jieba(const std::string& folder) {
  installed() = folder.empty() ? nullptr : std::make_shared<const Jieba>(folder);
}

std::string chinese_words_source() { return installed() == nullptr ? kCharacters : installed()->digest(); }

std::vector<Text> chinese_words(TextView text) {
  if (installed() != nullptr) return installed()->cut(text);
  std::vector<Text> words;
  for (const char32_t c : text) words.emplace_back(1, c);
  return words;
}

}  // namespace winnow::eval
