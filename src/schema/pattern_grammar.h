// JSON Schema's `pattern`, `format` and lengths of strings in GBNF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/grammar_rules.h"
#include "schema/pattern.h"
#include "schema/text_automaton.h"

namespace winnow {

// Returns an expression, without quotes, for the texts that meet the conditions, or nullopt if no text does. A single
// pattern is written as it stands, with its counts; several conditions, or one with look-ahead, become an automaton of
// bounded size. Throws Error(kInvalidArgument) if the bound is exceeded.
std::optional<std::string> text_grammar(const TextConditions& conditions, TextForm form, GrammarRules& rules,
                                        AutomatonLimits& limits);

// The patterns of a `format`: date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri and others.
struct FormatPatterns {
  const char* name;
  Pattern bounded;  // has parts of bounded lengths, which a small model might never end otherwise
  Pattern loose;    // is to be joined with other conditions
};
// Returns the patterns of a format, or null if it is not known.
const FormatPatterns* format_patterns(std::string_view name);

}  // namespace winnow
