// The test whether a schema accepts a value, and the rewriting of a schema without the values that `not` excludes.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "schema/schema_converter.h"

namespace winnow {

SchemaRules::Converter::Text SchemaRules::Converter::without_excluded(const OrderedJson& schema,
                                                                      const std::string& place, int depth) {
  std::vector<OrderedJson> open;
  for (const OrderedJson& one : all_of(schema, "not")) open.push_back(one);
  std::vector<OrderedJson> all{without(without(schema, "not"), " not")};
  for (; !open.empty();) {
    const OrderedJson excluded = flattened(open.back(), place + ".not", depth + 1);
    open.pop_back();
    step(place, depth);
    if (excluded == false) continue;
    if (has_only_annotations(excluded)) return std::nullopt;
    if (excluded.contains("anyOf") && has_only_annotations(without(excluded, "anyOf")) &&
        excluded["anyOf"].is_array()) {
      for (const OrderedJson& one : excluded["anyOf"]) open.push_back(one);
      continue;
    }
    std::vector<OrderedJson> more;
    bool is_held = true;
    for (const OrderedJson& one : all) is_held = is_held && exclude(one, excluded, more, place, depth);
    if (is_held) {
      all = std::move(more);
    } else {
      leave_out(place, "this 'not' is not supported: say what is allowed instead");
    }
  }
  std::vector<std::string> choices;
  for (const OrderedJson& one : all) {
    if (const Text text = expression(one, place, depth + 1)) choices.push_back(*text);
  }
  if (choices.empty()) return std::nullopt;
  return in_parentheses(choices);
}

bool SchemaRules::Converter::exclude(const OrderedJson& schema, const OrderedJson& excluded,
                                     std::vector<OrderedJson>& more, const std::string& place, int depth) {
  if (!schema.is_object() || schema.contains("anyOf") || schema.contains(" anyOf")) {
    for (const OrderedJson& option : options_of(schema, place)) {
      const OrderedJson flat = flattened(option, place, depth + 1);
      if (flat == false) continue;
      if (!flat.is_object() || flat.contains("anyOf") || !exclude(flat, excluded, more, place, depth + 1)) return false;
    }
    return true;
  }
  if (excluded.contains("not") && has_only_annotations(without(excluded, "not"))) {
    more.push_back({{"allOf", {schema, excluded["not"]}}});
    return true;
  }
  const std::set<std::string> all_types = types_of(schema);
  const bool names_types = excluded.contains("type") || excluded.contains("enum");
  const std::set<std::string> out = excluded.contains("enum") ? types_of_values(excluded["enum"]) : types_of(excluded);
  OrderedJson base = without(schema, "type");
  base.erase("nullable");
  for (const std::string& type : all_types) {
    const bool is_number = type == "integer" || type == "number";
    const bool is_out = out.contains(type) || (type == "integer" && out.contains("number")) ||
                        (type == "number" && out.contains("integer"));
    OrderedJson one = base;
    one["type"] = type;
    if (!is_out) {
      // The excluded schema says nothing about this type, so it matches all its values, unless it names its types.
      if (names_types) more.push_back(std::move(one));
      continue;
    }
    const OrderedJson rest = without(excluded, "type");
    if (has_only_annotations(rest)) {
      if (type == "number" && out.contains("integer") && !out.contains("number")) return false;
      continue;
    }
    if (const auto values = rest.find("enum"); values != rest.end()) {
      if (!has_only_annotations(without(rest, "enum")) || !values->is_array()) return false;
      if (!exclude_values(one, type, *values, more)) return false;
      continue;
    }
    if (type == "string") {
      if (!exclude_texts(one, rest, more)) return false;
    } else if (is_number) {
      if (!exclude_numbers(one, rest, more)) return false;
    } else if (type == "object") {
      if (!exclude_objects(one, rest, more, place, depth)) return false;
    } else {
      return false;
    }
  }
  return true;
}

std::set<std::string> SchemaRules::Converter::types_of_values(const OrderedJson& values) {
  std::set<std::string> types;
  for (const OrderedJson& value : values) {
    types.insert(value.is_null()      ? "null"
                 : value.is_boolean() ? "boolean"
                 : value.is_number()  ? "number"
                 : value.is_string()  ? "string"
                 : value.is_array()   ? "array"
                                      : "object");
  }
  return types;
}

bool SchemaRules::Converter::exclude_values(OrderedJson one, const std::string& type, const OrderedJson& values,
                                            std::vector<OrderedJson>& more) {
  if (type == "string") {
    for (const OrderedJson& value : values) {
      if (value.is_string()) add_to(one, kUnmatchedTexts, {{"is", value}});
    }
  } else if (type == "integer" || type == "number") {
    for (const OrderedJson& value : values) {
      if (value.is_number()) add_to(one, kUnmatchedNumbers, value);
    }
  } else if (type == "boolean") {
    OrderedJson left = OrderedJson::array();
    for (const bool value : {true, false}) {
      if (std::find(values.begin(), values.end(), OrderedJson(value)) == values.end()) left.push_back(value);
    }
    if (left.empty()) return true;
    one["enum"] = left;
  } else if (type == "null") {
    return true;
  } else {
    return false;  // lists and objects among the values
  }
  more.push_back(std::move(one));
  return true;
}

bool SchemaRules::Converter::exclude_texts(const OrderedJson& one, const OrderedJson& excluded,
                                           std::vector<OrderedJson>& more) {
  for (const auto& [keyword, value] : excluded.items()) {
    if (is_annotation(keyword)) continue;
    OrderedJson made = one;
    if ((keyword == "pattern" || keyword == "format") && value.is_string()) {
      if (keyword == "format" && format_patterns(value.get<std::string>()) == nullptr) return false;
      add_to(made, kUnmatchedTexts, {{keyword, value}});
    } else if (keyword == "minLength" && value.is_number_unsigned()) {
      if (value == 0) continue;
      made = merged(made, {{"maxLength", value.get<std::uint64_t>() - 1}});
    } else if (keyword == "maxLength" && value.is_number_unsigned()) {
      made = merged(made, {{"minLength", value.get<std::uint64_t>() + 1}});
    } else {
      return false;
    }
    more.push_back(std::move(made));
  }
  return true;
}

bool SchemaRules::Converter::exclude_numbers(const OrderedJson& one, const OrderedJson& excluded,
                                             std::vector<OrderedJson>& more) {
  static const std::map<std::string, std::string> kOpposites = {{"minimum", "exclusiveMaximum"},
                                                                {"maximum", "exclusiveMinimum"},
                                                                {"exclusiveMinimum", "maximum"},
                                                                {"exclusiveMaximum", "minimum"}};
  for (const auto& [keyword, value] : excluded.items()) {
    if (is_annotation(keyword)) continue;
    const auto opposite = kOpposites.find(keyword);
    if (opposite == kOpposites.end() || !value.is_number()) return false;
    more.push_back(merged(one, {{opposite->second, value}}));
  }
  return true;
}

bool SchemaRules::Converter::exclude_objects(const OrderedJson& one, const OrderedJson& excluded,
                                             std::vector<OrderedJson>& more, const std::string& place, int depth) {
  for (const auto& [keyword, value] : excluded.items()) {
    if (is_annotation(keyword)) continue;
    if (keyword != "required" || !value.is_array()) return false;
    for (const OrderedJson& name : value) {
      if (!name.is_string()) return false;
      more.push_back(joined(one, {{"properties", {{name.get<std::string>(), false}}}}, place, depth));
    }
  }
  return true;
}

bool SchemaRules::Converter::type_matches(const OrderedJson& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() || (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  }
  return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
         (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

bool SchemaRules::Converter::accepts(const OrderedJson& given, const OrderedJson& value, const std::string& place,
                                     int depth) {
  const OrderedJson schema = flattened(given, place, depth);
  if (schema.is_boolean()) return schema == true;
  const auto any_accepts = [&](const OrderedJson& options) {
    return !options.is_array() || std::any_of(options.begin(), options.end(), [&](const OrderedJson& option) {
      return accepts(option, value, place, depth + 1);
    });
  };
  if (schema.contains("anyOf") && !any_accepts(schema["anyOf"])) return false;
  if (const auto groups = schema.find(" anyOf"); groups != schema.end() && groups->is_array()) {
    if (!std::all_of(groups->begin(), groups->end(), any_accepts)) return false;
  }
  for (const OrderedJson& excluded : all_of(schema, "not")) {
    if (accepts(excluded, value, place, depth + 1)) return false;
  }
  if (schema.contains("enum") && schema["enum"].is_array()) {
    const OrderedJson& values = schema["enum"];
    if (std::find(values.begin(), values.end(), value) == values.end()) return false;
  }
  if (schema.contains("nullable") && schema["nullable"] == true && value.is_null()) return true;
  if (schema.contains("type")) {
    const std::set<std::string> types = types_of(schema);
    const auto matches = [&](const std::string& type) { return type_matches(value, type); };
    // Unknown types, which only advice may have, restrict nothing.
    if (std::all_of(types.begin(), types.end(), is_type_name) && std::none_of(types.begin(), types.end(), matches)) {
      return false;
    }
  }
  if (value.is_string()) return accepts_text(schema, value.get<std::string>(), place);
  if (value.is_number()) return accepts_number(schema, value, place);
  if (value.is_array()) return accepts_list(schema, value, place, depth);
  if (value.is_object()) return accepts_object(schema, value, place, depth);
  return true;
}

bool SchemaRules::Converter::accepts_text(const OrderedJson& schema, const std::string& text,
                                          const std::string& place) {
  OrderedJson kept = OrderedJson::object();
  for (const char* keyword : {"pattern", " pattern", "format", " format", "minLength", "maxLength"}) {
    if (schema.contains(keyword)) kept[keyword] = schema[keyword];
  }
  if (kept.empty()) return true;
  const auto [known, is_new] = automata_.try_emplace(text_of(kept));
  if (is_new) {
    try {
      known->second = std::make_unique<TextAutomaton>(text_conditions(kept, place), TextForm::kPlain, limits_);
    } catch (const Error& error) {
      leave_out(place, error.what());
    }
  }
  return known->second == nullptr || known->second->matches(text);
}

bool SchemaRules::Converter::accepts_number(const OrderedJson& schema, const OrderedJson& value,
                                            const std::string& place) {
  const Decimal number = decimal(value, place, "enum");
  const auto bound = [&](const char* keyword) -> std::optional<Decimal> {
    if (!schema.contains(keyword) || !schema[keyword].is_number()) return std::nullopt;
    return decimal(schema[keyword], place, keyword);
  };
  if (const auto least = bound("minimum"); least && number.is_below(*least)) return false;
  if (const auto most = bound("maximum"); most && most->is_below(number)) return false;
  if (const auto least = bound("exclusiveMinimum"); least && !least->is_below(number)) return false;
  if (const auto most = bound("exclusiveMaximum"); most && !number.is_below(*most)) return false;
  for (const OrderedJson& one : all_of(schema, "multipleOf")) {
    if (!one.is_number() || one <= 0) continue;
    const double parts = value.get<double>() / one.get<double>();
    if (std::abs(parts - std::round(parts)) > 1e-9 * std::max(1.0, std::abs(parts))) return false;
  }
  return true;
}

bool SchemaRules::Converter::accepts_list(const OrderedJson& schema, const OrderedJson& value, const std::string& place,
                                          int depth) {
  std::int64_t least = 0, most = -1;
  counts(schema, place, "Items", least, most);
  const auto n = static_cast<std::int64_t>(value.size());
  if (n < least || (most >= 0 && n > most)) return false;
  const OrderedJson first = said(schema, "prefixItems", OrderedJson::array());
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool is_first = i < first.size();
    if (!is_first && !schema.contains("items")) continue;
    if (!accepts(is_first ? first[i] : schema["items"], value[i], place, depth + 1)) return false;
  }
  return true;
}

bool SchemaRules::Converter::accepts_object(const OrderedJson& schema, const OrderedJson& value,
                                            const std::string& place, int depth) {
  for (const std::string& name : required_names(schema, place)) {
    if (!value.contains(name)) return false;
  }
  const OrderedJson properties = properties_of(schema, place);
  for (const auto& [name, one] : value.items()) {
    const auto property = properties.find(name);
    if (property != properties.end()) {
      if (!accepts(*property, one, place, depth + 1)) return false;
    } else if (schema.contains("additionalProperties") && !schema.contains("patternProperties")) {
      if (!accepts(schema["additionalProperties"], one, place, depth + 1)) return false;
    }
  }
  return true;
}
}  // namespace winnow
