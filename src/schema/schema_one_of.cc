// The keyword oneOf, rewritten as alternatives whose values match none of the others.
#include <algorithm>

#include "schema/schema_converter.h"
#include "schema/text_automaton.h"

namespace winnow {
namespace {

constexpr int kMostLevelsApart = 6;

bool is_among(const std::set<std::string>& types, const std::string& type) {
  const bool is_number = type == "number" || type == "integer";
  return types.contains(type) || (is_number && (types.contains("number") || types.contains("integer")));
}

OrderedJson parts_of(const OrderedJson& schema, std::initializer_list<const char*> keywords) {
  OrderedJson parts = OrderedJson::object();
  for (const char* keyword : keywords) {
    if (schema.contains(keyword)) parts[keyword] = schema[keyword];
  }
  return parts;
}

bool has_choices(const OrderedJson& schema) { return schema.contains("anyOf") || schema.contains(" anyOf"); }

}  // namespace

// The values that are written for the first may be fewer than those that it matches: if it names properties, objects
// have no others.
bool SchemaRules::Converter::is_apart(const OrderedJson& first, const OrderedJson& second, const std::string& place,
                                      int depth) {
  if (depth > kMostLevelsApart) return false;
  const OrderedJson a = flattened(first, place, depth), b = flattened(second, place, depth);
  step(place, depth, 1 + a.size() + b.size());
  if (a == false || b == false) return true;
  for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (!has_choices(*one)) continue;
    const std::vector<OrderedJson> options = options_of(*one, place);
    return std::all_of(
        options.begin(), options.end(), [&, other = other, is_first = one == &a](const OrderedJson& option) {
          return is_first ? is_apart(option, *other, place, depth + 1) : is_apart(*other, option, place, depth + 1);
        });
  }
  for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    const OrderedJson* values = enumeration(*one, place);
    if (values == nullptr) continue;
    const bool may_be_null = one->contains("nullable") && (*one)["nullable"] == true;
    if (may_be_null && accepts(*other, nullptr, place, depth)) return false;
    return std::none_of(values->begin(), values->end(),
                        [&, other = other](const OrderedJson& value) { return accepts(*other, value, place, depth); });
  }
  const std::set<std::string> written = types_of(a), taken = types_of(b);
  return std::all_of(written.begin(), written.end(), [&](const std::string& type) {
    const bool is_shared = !b.contains("type") || is_among(taken, type);
    return !is_shared || is_apart_as(type, a, b, place, depth);
  });
}

bool SchemaRules::Converter::is_apart_as(const std::string& type, const OrderedJson& a, const OrderedJson& b,
                                         const std::string& place, int depth) {
  if (type == "string") {
    const std::initializer_list<const char*> kOfTexts = {"pattern",   " pattern",  "format",       " format",
                                                         "minLength", "maxLength", kUnmatchedTexts};
    const OrderedJson both = merged(parts_of(a, kOfTexts), parts_of(b, kOfTexts));
    try {
      AutomatonLimits limits{.n_states = 2'000, .n_steps = 100'000};
      const TextConditions conditions = text_conditions(both, place);
      return conditions.most < conditions.least || TextAutomaton(conditions, TextForm::kPlain, limits).is_empty();
    } catch (const Error&) {
      return false;
    }
  }
  if (type == "number" || type == "integer") {
    const std::initializer_list<const char*> kBounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    const NumberBounds bounds = bounds_of(merged(parts_of(a, kBounds), parts_of(b, kBounds)), place);
    if (!bounds.least || !bounds.most) return false;
    const Bound &least = *bounds.least, &most = *bounds.most;
    return most.number.is_below(least.number) ||
           (!least.number.is_below(most.number) && (least.is_excluded || most.is_excluded));
  }
  if (type == "array") {
    std::int64_t least = 0, most = -1;
    if (!counts(merged(parts_of(a, {"minItems", "maxItems"}), parts_of(b, {"minItems", "maxItems"})), place, "Items",
                least, most)) {
      return true;
    }
    const bool has_first = least > 0 && !a.contains("prefixItems") && !b.contains("prefixItems");
    return has_first && is_apart(said(a, "items", true), said(b, "items", true), place, depth + 1);
  }
  if (type != "object") return false;
  const std::set<std::string> required = required_names(a, place), wanted = required_names(b, place);
  const OrderedJson properties = properties_of(a, place), others = properties_of(b, place);
  const bool is_closed =
      b.contains("additionalProperties") && b["additionalProperties"] == false && !b.contains("patternProperties");
  const auto is_told_by = [&](const std::string& name) {
    const auto other = others.find(name);
    if (other == others.end()) return is_closed;
    return is_apart(properties[name], *other, place, depth + 1);
  };
  const auto is_never_written = [&](const std::string& name) {
    const auto property = properties.find(name);
    return !properties.empty() && (property == properties.end() || *property == false);
  };
  return std::any_of(required.begin(), required.end(), is_told_by) ||
         std::any_of(wanted.begin(), wanted.end(), is_never_written);
}

// If an object could match both, the first is restricted: it must have a property that distinguishes them, or must not
// have one that the second requires.
bool SchemaRules::Converter::set_apart(OrderedJson& first, const OrderedJson& second, OrderedJson& restriction,
                                       const std::string& place, int depth) {
  if (is_apart(first, second, place, depth)) return true;
  const std::set<std::string> types = types_of(first), others_types = types_of(second);
  const bool is_object = std::all_of(types.begin(), types.end(), [&](const std::string& type) {
    return type == "object" || (second.contains("type") && !is_among(others_types, type));
  });
  const bool is_plain =
      !has_choices(first) && !has_choices(second) && !first.contains("enum") && !second.contains("enum");
  if (!is_object || !is_plain) return false;
  const std::set<std::string> required = required_names(first, place);
  const OrderedJson properties = properties_of(first, place), others = properties_of(second, place);
  for (const auto& [name, property] : properties.items()) {
    if (required.contains(name) || property == false || !others.contains(name)) continue;
    if (!is_apart(property, others[name], place, depth + 1)) continue;
    restriction["required"].push_back(name);
    first = merged(first, {{"required", {name}}});
    return true;
  }
  for (const std::string& name : required_names(second, place)) {
    if (properties.empty() || required.contains(name)) continue;
    restriction["properties"][name] = false;
    first = merged(first, {{"properties", {{name, false}}}});
    return true;
  }
  return false;
}

OrderedJson SchemaRules::Converter::exactly_one(const OrderedJson& options, const OrderedJson& beside,
                                                const std::string& place, int depth) {
  if (!options.is_array() || options.size() < 2) return options;
  const std::string key = text_of({options, beside});
  if (const auto known = told_apart_.find(key); known != told_apart_.end()) return known->second;
  std::vector<OrderedJson> all;
  for (const OrderedJson& option : options) {
    all.push_back(flattened({{"allOf", {option, without(beside, "unevaluatedProperties")}}}, place, depth + 1));
  }
  OrderedJson made = OrderedJson::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    OrderedJson restriction = OrderedJson::object(), own = all[i];
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (k == i || !own.is_object() || !all[k].is_object()) continue;
      if (set_apart(own, all[k], restriction, place, 0)) continue;
      const std::string what = "values may match both schemas " + std::to_string(std::min(i, k)) + " and " +
                               std::to_string(std::max(i, k)) + " of 'oneOf'";
      if (use_ == Use::kPromise) {
        refuse(place, what +
                          ", where exactly one must match: use 'anyOf', or give each a required property with its own "
                          "constant");
      }
      warn(place, what + "; it is treated as 'anyOf'");
    }
    const OrderedJson& option = options[i];
    if (restriction.empty()) {
      made.push_back(option);
    } else if (reference_in(option) != nullptr && option.size() == 1) {
      // It still refers to a rule by name, so that recursion ends.
      restriction.update(option);
      made.push_back(std::move(restriction));
    } else {
      made.push_back({{"allOf", {option, restriction}}});
    }
  }
  return told_apart_[key] = made;
}

}  // namespace winnow
