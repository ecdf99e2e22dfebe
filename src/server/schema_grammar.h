// JSON Schema to GBNF: what an answer must look like, in the form that libllama's grammar sampler takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace winnow::server {

using OrderedJson = nlohmann::ordered_json;  // properties come in the schema's order

// The usual subset: type (also several), properties, required, additionalProperties, items, minItems, maxItems,
// minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, enum, const, anyOf,
// oneOf, allOf with one entry, $ref to #/$defs and #/definitions; annotations are passed over. Properties that the
// schema does not name do not occur. Throws ApiError(400) that names the first keyword which is not among these.
std::string schema_grammar(const OrderedJson& schema);

// Any JSON object.
std::string json_object_grammar();

}  // namespace winnow::server
