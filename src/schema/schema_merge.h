// The combination of two JSON schemas into one that requires both.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace winnow {

// Two keywords of our own, which list what values must not be: texts ({"is": ..}, {"pattern": ..}, {"format": ..}) and
// numbers.
constexpr const char* kUnmatchedTexts = "~texts";
constexpr const char* kUnmatchedNumbers = "~numbers";

// Returns whether a keyword does not restrict values by itself, such as those for titles and examples.
bool is_annotation(const std::string& keyword);
bool has_only_annotations(const nlohmann::ordered_json& schema);

// Returns the schema that requires what both require; neither may have $ref or allOf. A keyword that cannot be joined
// stands in the result with a leading space and a list of all its values: " pattern", " format", " multipleOf", "
// anyOf" (lists of schemas, of each of which one matches) and " not".
nlohmann::ordered_json merged(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Returns the types that a schema allows, of null, boolean, integer, number, string, array, object. If it does not name
// them, they follow from its keywords.
std::set<std::string> types_of(const nlohmann::ordered_json& schema);

}  // namespace winnow
