#include "schema/grammar_rules.h"

#include "winnow/error.h"

namespace winnow {
namespace {

// The limit is below the 4 MiB that parse_grammar accepts.
constexpr std::size_t kMostBytes = 3'500'000;

}  // namespace

void GrammarRules::count(std::size_t n_bytes) {
  n_bytes_ += n_bytes;
  if (n_bytes_ > kMostBytes) {
    throw Error(ErrorCode::kInvalidArgument, "its grammar would be too long: shorten it");
  }
}

std::string GrammarRules::add(const std::string& text) {
  const auto [known, is_new] = names_.try_emplace(text);
  if (is_new) {
    known->second = reserve();
    define(known->second, text);
  }
  return known->second;
}

std::string GrammarRules::reserve() { return prefix_ + std::to_string(n_names_++); }

void GrammarRules::define(const std::string& name, std::string text) {
  count(name.size() + text.size() + 6);
  rules_.emplace_back(name, std::move(text));
}

std::string GrammarRules::text() const {
  std::string all;
  all.reserve(n_bytes_);
  for (const auto& [name, text] : rules_) all.append(name).append(" ::= ").append(text).append("\n");
  return all;
}

std::string grammar_literal(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace winnow
