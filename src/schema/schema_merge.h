// Two JSON schemas as one that says both.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace winnow {

// Keywords of our own, lists of what values must not be: texts ({"is": ..}, {"pattern": ..}, {"format": ..}) and
// numbers.
constexpr const char* kUnmatchedTexts = "~texts";
constexpr const char* kUnmatchedNumbers = "~numbers";

// What a schema says of nothing but people: titles, examples.
bool is_annotation(const std::string& keyword);
bool has_only_annotations(const nlohmann::ordered_json& schema);

// Of two objects without $ref and allOf: what both say. Where a keyword cannot be joined, the result has it with a
// leading space and a list of all that was said: " pattern", " format", " multipleOf", " anyOf" (lists of schemas, of
// each of which one matches) and " not".
nlohmann::ordered_json merged(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// The types that a schema allows, of null, boolean, integer, number, string, array, object; what it does not say
// follows from its keywords.
std::set<std::string> types_of(const nlohmann::ordered_json& schema);

}  // namespace winnow
