// Grammars of JSON, for SamplingOptions::grammar.
#pragma once

#include <string>
#include <string_view>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// What follows a JSON Schema, as GBNF. The usual subset: type (also several), properties, required,
// additionalProperties, items, minItems, maxItems, minLength, maxLength, pattern, format, minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, enum, const, anyOf, oneOf, allOf with one entry, $ref to #/$defs and
// #/definitions; annotations are passed over. Properties come in the schema's order, and those that it does not name do
// not occur. Throws Error(kInvalidArgument) for what is no JSON, for one of more than 1 MiB, 4,096 names, 100,000
// values or 64 levels, and for a keyword that is not among these.
std::string json_schema_grammar(std::string_view schema);

// Any JSON object.
std::string json_object_grammar();

}  // namespace winnow
