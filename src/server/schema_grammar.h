// JSON Schema to GBNF: what an answer must look like. libllama-common has a converter, too, which the grammars of tool
// calls come from; but it says nothing of keywords that it passes over, and nothing bounds its work (nested counts,
// long enums, patterns). This one is bounded and refuses what it cannot hold an answer to.
#pragma once

#include <string>

#include "server/fields.h"

namespace winnow::server {

// The usual subset: type (also several), properties, required, additionalProperties, items, minItems, maxItems,
// minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, enum, const, anyOf,
// oneOf, allOf with one entry, $ref to #/$defs and #/definitions; annotations are passed over. Properties that the
// schema does not name do not occur. Throws ApiError(400) that names the first keyword which is not among these.
std::string schema_grammar(const OrderedJson& schema);

// Any JSON object.
std::string json_object_grammar();

}  // namespace winnow::server
