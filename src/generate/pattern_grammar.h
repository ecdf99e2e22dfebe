// JSON schema's `pattern` and `format` of strings, in GBNF.
#pragma once

#include <cstdint>
#include <string>

namespace winnow {

// A JSON string, quotes included, in which a regular expression of ECMAScript's is found: literals and their escapes,
// ., classes, \d \w \s and their opposites, groups, alternatives, * + ? {m,n}, and ^ and $ at the ends; without them
// anything may stand before and behind. Throws Error(kInvalidArgument) for what goes beyond (look-around, references,
// \b, anchors inside) and for what does not parse.
std::string pattern_grammar(const std::string& pattern);

// A JSON string of a format: date, time, date-time, duration, uuid, email, ipv4, uri. Throws Error(kInvalidArgument)
// with the list for another one, and where its texts are not of min_length to max_length characters (-1: any).
std::string format_grammar(const std::string& format, std::int64_t min_length, std::int64_t max_length);

}  // namespace winnow
