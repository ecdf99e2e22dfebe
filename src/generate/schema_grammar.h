// JSON Schema to GBNF: what an answer must look like. libllama-common has a converter, too, which the grammars of tool
// calls come from; but it says nothing of keywords that it passes over, and nothing bounds its work (nested counts,
// long enums, patterns). This one is bounded and refuses what it cannot hold an answer to.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace winnow {

// As it was parsed: properties are written in their order. Names are looked up one after the other, so whoever parses
// bounds their number.
// The usual subset: type (also several), properties, required, additionalProperties, items, minItems, maxItems,
// minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, enum, const, anyOf,
// oneOf, allOf with one entry, $ref to #/$defs and #/definitions; annotations are passed over. Properties that the
// schema does not name do not occur. Throws Error(kInvalidArgument) that names the first keyword which is not among
// these.
std::string schema_grammar(const nlohmann::ordered_json& schema);

}  // namespace winnow
