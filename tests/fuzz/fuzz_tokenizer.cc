// Byte-pair tokenizers of every kind whose words winnow finds, on texts of up to 768 bytes. An input's first byte is
// the kind, with special tokens or without, and each two bytes that follow are a part and its number of repetitions, or
// a character. Every text is taken for a long one, whose words winnow finds, and must have the tokens that libllama
// gives for it on a large stack; every text must come back from its tokens.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "model/byte_pair_model.h"
#include "model/tiny_model.h"
#include "text/tokenizer.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kMostBytes = 768, kRunBytes = 12;

constexpr std::array<const char*, 48> kParts = {
    ".",          " ",      "\n",     "\t",     "\r",     "a",           "A",      "b",      "Z",
    "7",          "0",      "1",      "12",     "the",    " the",        "'s",     "'LL",    "=",
    "-",          "/",      "(",      "\"",     "y/",     "<sentinel:1", "\n\n",   "  ",     "\r\n",
    "\u00e9",     "\u00c9", "\u65e5", "\u672c", "\u3042", "\u3002",      "\uff0c", "\u0301", "\u0915\u093f",
    "\U0001F389", "\u00a0", "\u3000", "\u0661", "\u00bd", "\u0e01",      "\u05d0", "\u0416", "\u200d",
    "\ufeff",     "_",      "$"};

// Looked for before texts are split. The one of two lines keeps words from going to libllama together.
constexpr std::array<const char*, 3> kSpecials = {"<sentinel:1", "  ", "\n\n"};

struct Case {
  Case(const char* kind, bool has_specials)
      : name(kind),
        file({.n_layer = 1,
              .edit_metadata =
                  [=](gguf_context* made) {
                    const std::span<const char* const> specials(kSpecials.data(), has_specials ? kSpecials.size() : 0);
                    test::set_byte_pairs(made, kind, kRunBytes, specials);
                  }}),
        tokenizer(file.path(), 0) {}

  std::string_view name;
  test::TinyModel file;
  Tokenizer tokenizer;
};

const Case& case_of(std::size_t i) {
  const std::size_t n_kinds = test::kinds_with_rules().size();
  static std::vector<std::unique_ptr<const Case>> all(2 * n_kinds);
  std::unique_ptr<const Case>& one = all[i % all.size()];
  const bool has_specials = i % all.size() >= n_kinds;
  if (one == nullptr) one = std::make_unique<const Case>(test::kinds_with_rules()[i % n_kinds], has_specials);
  return *one;
}

std::string text_of(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kFew = 224, kMany = 19;
  std::string text;
  for (std::size_t i = 0; i + 1 < size && text.size() < kMostBytes; i += 2) {
    if (data[i] >= 192) {  // any character, once
      const std::uint32_t character = (data[i] & 0x3FU) << 10 | data[i + 1] << 2U | (i >> 1 & 3U);
      text += utf8_of(character & (character >= 0xD800 && character < 0xE000 ? 0x7FFU : 0xFFFFU));
      continue;
    }
    const std::string part = data[i] < 128 ? std::string(kParts[data[i] % kParts.size()])
                                           : std::string(1, static_cast<char>(data[i] & 0x7F));
    // Most parts come one to three times; one in eight comes up to 608 times.
    const std::size_t n = data[i + 1] < kFew ? 1 + data[i + 1] % 3 : (data[i + 1] - kFew + 1) * kMany;
    for (std::size_t k = 0; k < n && text.size() < kMostBytes; ++k) text += part;
  }
  return text;
}

// Returns true for texts that take libllama too long: its time for a number grows with the square of its length.
bool is_left_out(std::string_view kind, const std::string& text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return kind == "superbpe" && std::count_if(text.begin(), text.end(), is_digit) > 64;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Case& one = case_of(data[0]);
  const std::string text = text_of(data + 1, size - 1);
  const std::vector<Token> tokens = one.tokenizer.tokenize(text, false, false);
  std::string back;
  for (const Token token : tokens) back += one.tokenizer.token_text(token, true);
  if (back != text) __builtin_trap();
  if (!is_left_out(one.name, text) && tokens != test::whole_tokens(one.tokenizer, text)) __builtin_trap();
  return 0;
}
