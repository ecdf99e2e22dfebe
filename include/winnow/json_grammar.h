// Grammars of JSON, for SamplingOptions::grammar.
#pragma once

#include <string>
#include <string_view>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Returns the GBNF of the values that a JSON Schema takes; docs/server.md lists the keywords. Properties come in the
// schema's order, and those that it does not name do not occur. Throws Error(kInvalidArgument) for what is no JSON, for
// one of more than 4 MiB, 50,000 names (2,000 in an object), 100,000 values or 64 levels, for what nothing matches, and
// for a keyword that cannot be held.
std::string json_schema_grammar(std::string_view schema);

// Any JSON object.
std::string json_object_grammar();

}  // namespace winnow
