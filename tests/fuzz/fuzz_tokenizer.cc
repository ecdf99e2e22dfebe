// Byte-pair tokenizers of every kind, on texts of up to 768 bytes. Windows have 512, a sixteenth of the product's,
// and the longest tokens a sixteenth of those of the unit tests. An input's first byte is the kind, and each two bytes
// that follow are a part and its number of repetitions. Texts that libllama gets in windows must have the tokens that
// it gives for the whole on a large stack, and every text must come back from its tokens.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/byte_pair_model.h"
#include "model/tiny_model.h"
#include "text/tokenizer.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kWindowBytes = Tokenizer::kWindowBytes / 16, kRunBytes = 12;

constexpr std::array<const char*, 48> kParts = {
    ".",          " ",      "\n",     "\t",     "\r",     "a",           "A",      "b",      "Z",
    "7",          "0",      "1",      "12",     "the",    " the",        "'s",     "'LL",    "=",
    "-",          "/",      "(",      "\"",     "y/",     "<sentinel:1", "\n\n",   "  ",     "\r\n",
    "\u00e9",     "\u00c9", "\u65e5", "\u672c", "\u3042", "\u3002",      "\uff0c", "\u0301", "\u0915\u093f",
    "\U0001F389", "\u00a0", "\u3000", "\u0661", "\u00bd", "\u0e01",      "\u05d0", "\u0416", "\u200d",
    "\ufeff",     "_",      "$"};

constexpr std::array<std::string_view, 5> kSpaces = {" ", "\t", "\u00a0", "\u3000", ""};  // without ends of lines

struct Case {
  explicit Case(const char* kind)
      : name(kind),
        file({.n_layer = 1, .edit_metadata = [=](gguf_context* made) { test::set_byte_pairs(made, kind, kRunBytes); }}),
        tokenizer(file.path(), kWindowBytes) {}

  std::string_view name;
  test::TinyModel file;
  Tokenizer tokenizer;
};

const Case& case_of(std::size_t i) {
  static std::vector<std::unique_ptr<const Case>> all(test::kinds_of_words().size());
  if (all[i] == nullptr) all[i] = std::make_unique<const Case>(test::kinds_of_words()[i]);
  return *all[i];
}

std::string text_of(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 3 * kWindowBytes / 2, kFew = 224, kMany = 19;
  std::string text;
  for (std::size_t i = 0; i + 1 < size && text.size() < kMostBytes; i += 2) {
    const std::string part = data[i] < 128 ? std::string(kParts[data[i] % kParts.size()])
                                           : std::string(1, static_cast<char>(data[i] & 0x7F));
    // Most parts come one to three times; one in eight comes up to 608 times.
    const std::size_t n = data[i + 1] < kFew ? 1 + data[i + 1] % 3 : (data[i + 1] - kFew + 1) * kMany;
    for (std::size_t k = 0; k < n && text.size() < kMostBytes; ++k) text += part;
  }
  return text;
}

// Returns false for kinds whose tokens spell texts as they are, also white space, for which this vocabulary has no
// tokens.
bool has_byte_names(std::string_view kind) {
  return kind != "gemma4" && kind != "granite-embed-multi-311m" && kind != "sarvam-moe";
}

// Returns true if a line's end follows white space without one that is longer than what a window looks ahead. Many
// kinds take white space up to its last line's end for one word, so that how it begins depends on how it ends.
bool has_late_line(std::string_view text) {
  std::size_t n_bytes = 0;  // of white space without ends of lines
  while (!text.empty()) {
    const std::string_view space = *std::find_if(kSpaces.begin(), kSpaces.end(), [&](std::string_view one) {
      return text.starts_with(one);  // the last one is empty
    });
    if (space.empty() && n_bytes > kWindowBytes / 4 && (text[0] == '\n' || text[0] == '\r')) return true;
    n_bytes = space.empty() ? 0 : n_bytes + space.size();
    text.remove_prefix(std::max(space.size(), std::size_t{1}));
  }
  return false;
}

// Returns true for texts that windows are known to fail on (jais-2's blocks of white space, late ends of lines), or
// that take libllama too long.
bool is_left_out(std::string_view kind, const std::string& text) {
  constexpr int kMany = kWindowBytes / 16;
  if (has_late_line(text)) return true;
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  if (kind == "jais-2") return std::count_if(text.begin(), text.end(), is_space) > kMany;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return kind == "superbpe" && std::count_if(text.begin(), text.end(), is_digit) > kMany;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Case& one = case_of(data[0] % test::kinds_of_words().size());
  const std::string text = text_of(data + 1, size - 1);
  const std::vector<Token> tokens = one.tokenizer.tokenize(text, false, false);
  std::string back;
  for (const Token token : tokens) back += one.tokenizer.token_text(token, true);
  if (back != text && has_byte_names(one.name)) __builtin_trap();
  if (text.size() > kWindowBytes && !is_left_out(one.name, text) && tokens != test::whole_tokens(one.tokenizer, text)) {
    __builtin_trap();
  }
  return 0;
}
