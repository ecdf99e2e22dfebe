// JSON schemas. An input has a whole schema as text (a first byte from 128 on; from 192 on as advice), a pattern and,
// after a byte of 1, a text (an odd byte), or the bounds of a number. A schema that is not refused must give a grammar
// that parses, unless it has too many rules. The grammar of a number is tried with some numbers about the bounds. The
// text must follow the grammar of the pattern exactly if the pattern's automaton matches the text.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "model/tiny_model.h"
#include "schema/pattern_grammar.h"
#include "schema/schema_grammar.h"
#include "schema/text_automaton.h"
#include "text/grammar_matcher.h"
#include "winnow/error.h"
#include "winnow/json_grammar.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)
using OrderedJson = nlohmann::ordered_json;

std::shared_ptr<const Grammar> parsed(const std::string& text, const Tokenizer& tokenizer) {
  try {
    constexpr GrammarLimits kLimits{.n_rules = 2'000,
                                    .n_symbols = 50'000};  // lower than the product's, which saves time
    return std::make_shared<const Grammar>(parse_grammar(text, tokenizer.vocab(), kLimits));
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.find("more than") == what.npos) __builtin_trap();
    return nullptr;
  }
}

bool matches(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer, const std::string& text) {
  constexpr Token kFirstByte = 3;  // in the tiny model
  GrammarMatcher matcher(grammar, tokenizer);
  for (const char byte : text) {
    const Token token = kFirstByte + static_cast<unsigned char>(byte);
    if (!matcher.allows(token)) return false;
    matcher.accept(token);
  }
  return matcher.allows(tokenizer.pieces().ends.at(0));
}

void check_numbers(const std::uint8_t* data, std::size_t size, const Tokenizer& tokenizer) {
  std::uint8_t bytes[16] = {};
  std::memcpy(bytes, data, std::min(size, sizeof bytes));
  const auto number = [&](int at) {
    std::int32_t n = 0;
    std::memcpy(&n, bytes + at, sizeof n);
    return static_cast<double>(n >> (bytes[at] % 32)) / std::pow(10, bytes[at + 4] % 5);
  };
  const double least = number(1), most = number(8);
  const bool is_integer = bytes[0] % 2 == 0, no_least = bytes[0] / 2 % 2 == 0, no_most = bytes[0] / 4 % 2 == 0;
  const OrderedJson schema = {{"type", is_integer ? "integer" : "number"},
                              {no_least ? "exclusiveMinimum" : "minimum", least},
                              {no_most ? "exclusiveMaximum" : "maximum", most}};
  const auto is_inside = [&](double value) {
    return (no_least ? value > least : value >= least) && (no_most ? value < most : value <= most) &&
           (!is_integer || value == std::floor(value));
  };
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = parsed(schema_grammar(schema), tokenizer);
  } catch (const Error&) {
    for (const double value : {least, most, std::ceil(least), std::floor(most)}) {
      if (is_inside(value)) __builtin_trap();
    }
    return;
  }
  const double bases[] = {least, most, (least + most) / 2, 0.0};
  constexpr double kSteps[] = {0.0, 1.0, -1.0, 0.1, -0.1, 0.0001, -0.0001};
  constexpr int kChoices[] = {6, 7, 13, 14};  // bytes that are not used otherwise
  for (int i = 0; i < 4; ++i) {
    double value = std::round((bases[i] + kSteps[bytes[kChoices[i]] % std::size(kSteps)]) * 1e4) / 1e4;
    if (is_integer) value = std::floor(value);
    std::string text = OrderedJson(value).dump();
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    if (value == 0) text = "0";
    if (text.find('e') != std::string::npos || std::abs(value) > 1e9) continue;
    if (matches(grammar, tokenizer, text) != is_inside(value)) __builtin_trap();
  }
}

// Returns a grammar like that of a tool's parameters, for JSON that is not nested too deeply.
std::string advice_grammar(const std::string& text) {
  bool is_too_deep = false;
  const auto watch = [&](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    is_too_deep |= depth > 64;
    return !is_too_deep;
  };
  const OrderedJson schema = OrderedJson::parse(text, watch, false);
  if (is_too_deep || schema.is_discarded()) return "root ::= \"\"";
  SchemaRules rules(SchemaRules::Use::kAdvice);
  rules.begin("it", schema);
  const std::string root = rules.value(schema, "here");
  const std::optional<std::string> plain = rules.text(schema, "here", "</end>");
  return "root ::= " + root + (plain ? " | " + *plain : "") + "\n" + rules.rules();
}

void check_pattern(const std::string& input, const Tokenizer& tokenizer) {
  const std::size_t split = std::min(input.find('\1'), input.size());
  const std::string text = input.substr(std::min(split + 1, input.size()));
  if (find_invalid_utf8(text)) return;
  const TextConditions conditions{.matched = {Pattern::parse(input.substr(0, split))}};
  GrammarRules rules("r");
  AutomatonLimits limits{.n_states = 500, .n_steps = 50'000};
  const auto expression = text_grammar(conditions, TextForm::kPlain, rules, limits);
  const auto grammar = expression ? parsed("root ::= " + *expression + "\n" + rules.text(), tokenizer) : nullptr;
  const TextAutomaton automaton(conditions, TextForm::kPlain, limits);
  if (!expression && !automaton.is_empty()) __builtin_trap();
  if (grammar == nullptr || text.find('\0') != std::string::npos) return;
  GrammarMatcher matcher(grammar, tokenizer);
  const bool is_followed = matcher.accept_text(text) && matcher.allows(tokenizer.pieces().ends.at(0));
  if (is_followed != automaton.matches(text)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TinyModel file({.n_layer = 1});
  static const Tokenizer tokenizer(file.path());
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] < 128 && data[0] % 2 == 0) {
    check_numbers(data + 1, size - 1, tokenizer);
    return 0;
  }
  try {
    if (data[0] < 128) {
      check_pattern(text, tokenizer);
    } else {
      parsed(data[0] < 192 ? json_schema_grammar(text) : advice_grammar(text), tokenizer);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) __builtin_trap();
  }
  return 0;
}
