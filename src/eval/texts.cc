#include "eval/texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/running_text.h"
#include "base/utf8.h"
#include "eval/sample_files.h"
#include "eval/shipped.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kShippedTexts = "text/";
constexpr std::size_t kMostWordTokens = 16;  // of a longer word the rest is taken for a word of its own

std::string text_of_file(const fs::path& path, const SampleOptions& options) {
  if (path.extension() != ".jsonl") return read_text_file(path);
  std::string text;
  if (!fs::is_regular_file(path)) throw Error(ErrorCode::kNotFound, "there is no '" + path.string() + "'");
  read_jsonl(path, options, [&](const Record& record) {
    text += with_plain_line_ends(record.text("text"));
    return true;
  });
  return text;
}

bool is_white(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// Returns true if the word that ends with the full stop at `dot` does not end a sentence: "Mr.", "J.".
bool is_abbreviation(std::string_view text, std::size_t dot) {
  constexpr auto kWords = std::to_array<std::string_view>({"Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Capt", "Col", "Gen",
                                                           "Rev", "Hon", "Jr", "Sr", "No", "vs", "etc", "e.g", "i.e"});
  std::size_t begin = dot;
  while (begin > 0 && (std::isalpha(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '.'))
    --begin;
  const std::string_view word = text.substr(begin, dot - begin);
  const char last = word.empty() ? ' ' : word.back();
  const bool letter_alone = word.size() == 1 ? last != 'I' : word.size() > 1 && word[word.size() - 2] == '.';
  const bool initial = letter_alone && last >= 'A' && last <= 'Z';
  return initial || std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

}  // namespace

std::vector<Book> books(const SampleOptions& options) {
  std::vector<Book> found;
  const fs::path path = options.haystack;
  if (options.haystack.empty()) {
    for (const ShippedFile& file : shipped_files()) {
      if (file.name.starts_with(kShippedTexts)) found.push_back({fs::path(file.name).stem(), std::string(file.text)});
    }
  } else if (fs::is_directory(path)) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) found.push_back({file.stem(), read_text_file(file)});
    if (found.empty()) {
      throw Error(ErrorCode::kNotFound, "'" + path.string() + "' holds no *.txt: name a folder of texts");
    }
  } else {
    found.push_back({path.stem(), text_of_file(path, options)});
  }
  for (const Book& book : found) {
    if (book.text.find_first_not_of(" \t\r\n") == std::string::npos) {
      throw Error(ErrorCode::kBadFile, "the text '" + book.name + "' is empty: name another with --haystack");
    }
  }
  return found;
}

std::string joined_books(const SampleOptions& options) {
  std::string text;
  for (const Book& book : books(options)) text += (text.empty() ? "" : "\n\n") + book.text;
  return text;
}

std::vector<std::string> distinct_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && seen.insert(line).second) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> sentences_of(std::string_view text) {
  std::vector<std::string> sentences;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '.' && text[i] != '!' && text[i] != '?') continue;
    if (text[i] == '.' && is_abbreviation(text, i)) continue;
    std::size_t end = i + 1;
    while (end < text.size() && std::string_view("\"')]").find(text[end]) != std::string_view::npos) ++end;
    if (end < text.size() && !is_white(text[end])) continue;
    sentences.emplace_back(text.substr(begin, end - begin));
    while (end < text.size() && is_white(text[end])) ++end;
    begin = end;
    i = end - 1;
  }
  if (begin < text.size()) sentences.emplace_back(text.substr(begin));
  return sentences;
}

TokenText::TokenText(const SampleOptions& options, std::string_view text, std::size_t n_tokens) {
  if (!options.split_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "samples of a length in tokens need a model's tokenizer: name the model");
  }
  // Cutting the text to what is surely enough saves tokenising a whole book.
  const std::size_t bytes = n_tokens == 0 ? text.size() : whole_characters(text, n_tokens * 16);
  tokens_ = options.split_tokens(text.substr(0, bytes));
  if (tokens_.empty()) throw Error(ErrorCode::kInvalidArgument, "the text has no tokens");
  if (tokens_.size() < n_tokens && bytes < text.size()) tokens_ = options.split_tokens(text);
  const std::size_t n_text = tokens_.size();
  while (tokens_.size() < n_tokens) tokens_.push_back(tokens_[tokens_.size() % n_text]);
}

std::string TokenText::text(std::size_t begin, std::size_t end) const {
  std::string joined;
  for (std::size_t i = begin; i < std::min(end, tokens_.size()); ++i) joined += tokens_[i];
  std::size_t skip = 0;
  while (skip < joined.size() && continues_character(joined[skip])) ++skip;
  joined.erase(0, skip);
  if (end < tokens_.size() && !joined.empty()) {
    // A character may continue in the next token.
    const std::string with_next = joined + tokens_[end];
    joined.resize(whole_characters(with_next, joined.size()));
  }
  return joined;
}

std::size_t TokenText::word_from(std::size_t i) const {
  const std::size_t n = tokens_.size();
  if (i == 0 || i >= n) return std::min(i, n);
  for (std::size_t at = i; at < std::min(i + kMostWordTokens, n); ++at) {
    if (!tokens_[at].empty() && is_white(tokens_[at][0])) return at;
  }
  while (i < n && (tokens_[i].empty() || continues_character(tokens_[i][0]))) ++i;
  return i;
}

std::int32_t count_tokens(const SampleOptions& options, std::string_view text) {
  if (!options.count_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "samples of a length in tokens need a model's tokenizer: name the model");
  }
  return options.count_tokens(text);
}

void use_tokenizer(SampleOptions& options, std::shared_ptr<const Model> model) {
  options.count_tokens = [model](std::string_view text) {
    return static_cast<std::int32_t>(model->tokenize(text, true, false).size());
  };
  options.split_tokens = [model](std::string_view text) {
    std::vector<std::string> parts;
    std::size_t n_bytes = 0;
    for (const Token token : model->tokenize(text, false, false)) {
      parts.push_back(model->token_text(token));
      n_bytes += parts.back().size();
    }
    // Some vocabularies put a space before the first word.
    if (n_bytes == text.size() + 1 && !parts.empty() && parts[0].starts_with(' ') && !text.starts_with("  ")) {
      parts[0].erase(0, 1);
      --n_bytes;
    }
    if (n_bytes != text.size()) {
      throw Error(ErrorCode::kUnsupported,
                  "this model's tokenizer does not give texts back unchanged, so they cannot be cut by tokens");
    }
    return parts;
  };
}

}  // namespace winnow::eval
