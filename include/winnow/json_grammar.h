// Grammars (GBNF) of JSON, for SamplingOptions::grammar.
#pragma once

#include <string>
#include <string_view>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Returns the GBNF of the values that a JSON Schema accepts; docs/server.md lists the keywords. Properties come in the
// schema's order, and properties that it does not name do not occur. Throws Error(kInvalidArgument) for text that is
// not JSON, for a schema of more than 4 MiB, 50,000 names (2,000 in an object), 100,000 values or 64 levels, for a
// schema that nothing matches, and for a keyword that a grammar cannot enforce.
std::string json_schema_grammar(std::string_view schema);

// Returns the GBNF of any JSON object.
std::string json_object_grammar();

}  // namespace winnow
