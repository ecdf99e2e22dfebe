// JSON schema's `pattern`, `format` and lengths of strings, in GBNF.
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

// An expression for the texts that the conditions hold for, without quotes. A single pattern is written as it stands,
// with its counts; where there is more, or it looks ahead, as an automaton, whose size is bounded. Nothing where no
// text fits. Throws Error(kInvalidArgument) where the bound is passed.
std::optional<std::string> text_grammar(const TextConditions& conditions, TextForm form, GrammarRules& rules,
                                        AutomatonLimits& limits);

// The pattern of a `format`: date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri and others.
// Nothing for one that is not known.
struct FormatPatterns {
  const char* name;
  Pattern bounded;  // whose parts are of bounded lengths: alone a small model would go on with them for ever
  Pattern loose;    // to be joined with other conditions
};
const FormatPatterns* format_patterns(std::string_view name);

}  // namespace winnow
