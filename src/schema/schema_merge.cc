#include "schema/schema_merge.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>

#include "schema/json_text.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::map<std::string, std::string>& owners() {
  static const std::map<std::string, std::string> all = {{"properties", "object"},
                                                         {"required", "object"},
                                                         {"additionalProperties", "object"},
                                                         {"patternProperties", "object"},
                                                         {"propertyNames", "object"},
                                                         {"minProperties", "object"},
                                                         {"maxProperties", "object"},
                                                         {"unevaluatedProperties", "object"},
                                                         {"items", "array"},
                                                         {"prefixItems", "array"},
                                                         {"minItems", "array"},
                                                         {"maxItems", "array"},
                                                         {"uniqueItems", "array"},
                                                         {"contains", "array"},
                                                         {"minLength", "string"},
                                                         {"maxLength", "string"},
                                                         {"pattern", "string"},
                                                         {" pattern", "string"},
                                                         {"format", "string"},
                                                         {" format", "string"},
                                                         {"minimum", "number"},
                                                         {"maximum", "number"},
                                                         {"exclusiveMinimum", "number"},
                                                         {"exclusiveMaximum", "number"},
                                                         {"multipleOf", "number"},
                                                         {" multipleOf", "number"}};
  return all;
}

std::string text_to_compare(const OrderedJson& value) {
  // Equal numbers have the same text, however they are written.
  if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
      std::abs(value.get<double>()) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value.get<double>()));
  }
  return text_of(value);
}

// Returns the texts of the values in a list, for look-ups.
std::set<std::string> texts_of(const OrderedJson& list) {
  std::set<std::string> texts;
  for (const OrderedJson& one : list) texts.insert(text_to_compare(one));
  return texts;
}

OrderedJson both(const OrderedJson& a, const OrderedJson& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", {a, b}}};
}

// Returns the values of a keyword so far as a list.
OrderedJson values_of(const OrderedJson& schema, const std::string& keyword) {
  if (const auto list = schema.find(" " + keyword); list != schema.end() && list->is_array()) return *list;
  const auto one = schema.find(keyword);
  return one == schema.end() ? OrderedJson::array() : OrderedJson::array({*one});
}

void join(OrderedJson& to, const OrderedJson& from, const std::string& keyword) {
  OrderedJson all = values_of(to, keyword);
  for (const OrderedJson& one : values_of(from, keyword)) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  to.erase(keyword);
  to.erase(" " + keyword);
  if (all.size() == 1) {
    to[keyword] = all[0];
  } else {
    to[" " + keyword] = std::move(all);
  }
}

OrderedJson list_of_types(const OrderedJson& type) {
  OrderedJson list = type.is_array() ? type : OrderedJson::array({type});
  return list;
}

OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson common = OrderedJson::array();
  const OrderedJson first = list_of_types(a), second = list_of_types(b);
  const auto has = [](const OrderedJson& list, const OrderedJson& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  for (const OrderedJson& one : first) {
    if (has(second, one) || (one == "integer" && has(second, "number"))) common.push_back(one);
  }
  if (has(second, "integer") && has(first, "number") && !has(common, "integer")) common.push_back("integer");
  return common;
}

bool is_closed(const OrderedJson& schema) {
  return schema.contains("additionalProperties") && schema["additionalProperties"] == false &&
         !schema.contains("patternProperties");
}

// Returns the schema for a property that a schema does not name.
OrderedJson unnamed(const OrderedJson& schema) {
  if (is_closed(schema)) return false;
  if (schema.contains("patternProperties") || !schema.contains("additionalProperties")) return true;
  return schema["additionalProperties"];
}

OrderedJson merged_properties(const OrderedJson& a, const OrderedJson& b) {
  static const OrderedJson kNone = OrderedJson::object();
  const auto of = [](const OrderedJson& schema) -> const OrderedJson& {
    const auto found = schema.find("properties");
    return found == schema.end() || !found->is_object() ? kNone : *found;
  };
  const OrderedJson &first = of(a), &second = of(b);
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, property] : first.items()) {
    const auto other = second.find(name);
    all[name] = both(property, other == second.end() ? unnamed(b) : *other);
  }
  for (const auto& [name, property] : second.items()) {
    if (!first.contains(name)) all[name] = both(property, unnamed(a));
  }
  return all;
}

// Returns the schema for item `i` of a list.
OrderedJson item_at(const OrderedJson& schema, std::size_t i) {
  const auto first = schema.find("prefixItems");
  if (first != schema.end() && first->is_array() && i < first->size()) return (*first)[i];
  const auto rest = schema.find("items");
  if (rest == schema.end() || rest->is_array()) return true;
  return *rest;
}

// Joins the schemas of items that two schemas of lists have at each place.
void join_items(OrderedJson& to, const OrderedJson& a, const OrderedJson& b) {
  const auto size = [](const OrderedJson& schema) {
    return schema.contains("prefixItems") && schema["prefixItems"].is_array() ? schema["prefixItems"].size() : 0;
  };
  const std::size_t n_first = std::max(size(a), size(b));
  OrderedJson first = OrderedJson::array();
  for (std::size_t i = 0; i < n_first; ++i) first.push_back(both(item_at(a, i), item_at(b, i)));
  if (n_first > 0) to["prefixItems"] = std::move(first);
  if (a.contains("items") || b.contains("items")) to["items"] = both(item_at(a, n_first), item_at(b, n_first));
}

constexpr std::string_view kLargest[] = {"minItems", "minLength",        "minProperties",
                                         "minimum",  "exclusiveMinimum", "minContains"};
constexpr std::string_view kSmallest[] = {"maxItems", "maxLength",        "maxProperties",
                                          "maximum",  "exclusiveMaximum", "maxContains"};

template <std::size_t n>
bool is_among(const std::string_view (&list)[n], const std::string& keyword) {
  return std::find(std::begin(list), std::end(list), keyword) != std::end(list);
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> all = {"title",
                                            "description",
                                            "default",
                                            "examples",
                                            "example",
                                            "$schema",
                                            "$id",
                                            "id",
                                            "$comment",
                                            "deprecated",
                                            "readOnly",
                                            "writeOnly",
                                            "$defs",
                                            "definitions",
                                            "strict",
                                            "discriminator",
                                            "$anchor",
                                            "$dynamicAnchor",
                                            "$vocabulary",
                                            "name",
                                            "contentEncoding",
                                            "contentMediaType",
                                            "contentSchema",
                                            "markdownDescription",
                                            "enumNames",
                                            "enumDescriptions",
                                            "propertyOrdering",
                                            "externalDocs",
                                            "xml",
                                            "errorMessage",
                                            "$recursiveAnchor",
                                            "nullable",
                                            "optional",
                                            "additionalItems",
                                            "minContains",
                                            "maxContains"};
  return keyword.starts_with("x-") || all.contains(keyword);
}

bool has_only_annotations(const OrderedJson& schema) {
  for (const auto& [keyword, value] : schema.items()) {
    if (!is_annotation(keyword) || (keyword == "nullable" && value == true)) return false;
  }
  return true;
}

OrderedJson merged(const OrderedJson& a, const OrderedJson& b) {
  if (a.is_boolean()) return a == true ? b : a;
  if (b.is_boolean()) return b == true ? a : b;
  OrderedJson all = a;
  // Null stays allowed only if both allow it.
  const auto allows_null = [](const OrderedJson& schema) {
    return schema.contains("nullable") && schema["nullable"] == true;
  };
  if (allows_null(a) && !allows_null(b) && b.contains("type")) all.erase("nullable");
  for (const auto& [keyword, value] : b.items()) {
    if (keyword == "nullable") {
      if (value == true && !a.contains("type")) all[keyword] = value;
      continue;
    }
    if (is_annotation(keyword)) continue;
    if (keyword.starts_with('~')) {
      for (const OrderedJson& one : value) all[keyword].push_back(one);
    } else if (keyword == "properties") {
      all["properties"] = merged_properties(a, b);
    } else if (keyword == "pattern" || keyword == "format" || keyword == "multipleOf" || keyword == "not" ||
               keyword == "anyOf") {
      join(all, b, keyword);
    } else if (keyword == " pattern" || keyword == " format" || keyword == " multipleOf" || keyword == " not" ||
               keyword == " anyOf") {
      join(all, b, keyword.substr(1));
    } else if (!a.contains(keyword)) {
      all[keyword] = value;
    } else if (is_among(kLargest, keyword) && value.is_number() && a[keyword].is_number()) {
      all[keyword] = a[keyword] < value ? value : a[keyword];
    } else if (is_among(kSmallest, keyword) && value.is_number() && a[keyword].is_number()) {
      all[keyword] = value < a[keyword] ? value : a[keyword];
    } else if (keyword == "type") {
      all[keyword] = common_types(a[keyword], value);
    } else if (keyword == "required" && value.is_array() && a[keyword].is_array()) {
      std::set<std::string> known = texts_of(a[keyword]);
      for (const OrderedJson& name : value) {
        if (known.insert(text_to_compare(name)).second) all[keyword].push_back(name);
      }
    } else if (keyword == "enum" && value.is_array() && a[keyword].is_array()) {
      OrderedJson common = OrderedJson::array();
      const std::set<std::string> others = texts_of(value);
      for (const OrderedJson& one : a[keyword]) {
        if (others.contains(text_to_compare(one))) common.push_back(one);
      }
      all[keyword] = std::move(common);
    } else if (keyword == "patternProperties" && value.is_object() && a[keyword].is_object()) {
      for (const auto& [pattern, schema] : value.items()) {
        all[keyword][pattern] = all[keyword].contains(pattern) ? both(all[keyword][pattern], schema) : schema;
      }
    } else if (keyword == "uniqueItems") {
      all[keyword] = all[keyword] == true || value == true;
    } else if (keyword == "additionalProperties" || keyword == "propertyNames" || keyword == "contains") {
      all[keyword] = both(all[keyword], value);
    }
  }
  const auto says_items = [](const OrderedJson& schema) {
    return schema.contains("prefixItems") || (schema.contains("items") && !schema["items"].is_array());
  };
  if (says_items(a) && says_items(b)) join_items(all, a, b);
  if (a.contains("properties") && !b.contains("properties")) all["properties"] = merged_properties(a, b);
  return all;
}

std::set<std::string> types_of(const OrderedJson& schema) {
  std::set<std::string> types;
  const auto type = schema.find("type");
  if (type != schema.end()) {
    for (const OrderedJson& one : list_of_types(*type)) {
      if (one.is_string()) types.insert(one.get<std::string>());
    }
  } else {
    for (const auto& [keyword, value] : schema.items()) {
      if (const auto owner = owners().find(keyword); owner != owners().end()) types.insert(owner->second);
    }
    if (types.empty()) types = {"null", "boolean", "number", "string", "array", "object"};
  }
  if (schema.contains("nullable") && schema["nullable"] == true) types.insert("null");
  return types;
}

}  // namespace winnow
