// The expressions for arrays and objects.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "schema/schema_converter.h"

namespace winnow {

SchemaRules::Converter::Text SchemaRules::Converter::array(const OrderedJson& schema, const std::string& place,
                                                           int depth) {
  std::int64_t least = 0, most = -1;
  if (!counts(schema, place, "Items", least, most)) return std::nullopt;
  static const OrderedJson kNone = OrderedJson::array(), kAny = true;
  const OrderedJson* first = &kNone;
  const OrderedJson* rest = &kAny;
  bool has_rest = false;
  if (schema.contains("prefixItems")) first = &schema["prefixItems"];
  if (schema.contains("items")) {
    if (schema["items"].is_array()) {
      // Drafts before 2020-12 have a list of leading items here.
      first = &schema["items"];
      if (schema.contains("additionalItems")) rest = &schema["additionalItems"];
    } else {
      rest = &schema["items"];
    }
    has_rest = *rest != true;
  }
  check(first->is_array(), place, "'prefixItems' must be a list of schemas");
  if (schema.contains("uniqueItems") && schema["uniqueItems"] == true) {
    bool is_held = false;
    const Text text = first->empty() ? set(*rest, least, most, place, depth, is_held) : std::nullopt;
    if (is_held) return text;
    warn(place, "'uniqueItems' is not enforced: items may repeat");
  }
  std::vector<std::string> leading;
  for (const OrderedJson& one : *first) {
    const Text text = expression(one, place + ".prefixItems[" + std::to_string(leading.size()) + "]", depth + 1);
    if (!text) break;
    leading.push_back(*text);
  }
  const auto n_first = static_cast<std::int64_t>(leading.size());
  Text more;
  const bool is_short = leading.size() < first->size();
  if (!is_short && (most < 0 || most > n_first)) {
    // A list of leading items has no further ones, unless the schema says so.
    const bool is_closed = n_first > 0 && !has_rest && least <= n_first;
    if (!is_closed) more = expression(*rest, place + ".items", depth + 1);
  }
  if (!more && (is_short || most < 0 || most > n_first)) most = n_first;
  if (least > most && most >= 0) return std::nullopt;
  // All leading items are written if the schema does not say how few there may be.
  if (!schema.contains("minItems") && n_first > 0) least = most < 0 ? n_first : std::min(n_first, most);
  if (most == 0) return "\"[]\"";
  std::string list;
  if (more && n_first < (most < 0 ? kMostCount : most)) {
    const std::int64_t least_more = std::max<std::int64_t>(least - n_first, 0);
    const std::int64_t most_more = most < 0 ? -1 : most - n_first;
    if (n_first > 0) {
      list = repeated("(\",\" w-ws " + *more + ")", least_more, most_more);
    } else {
      list = *more + " " + repeated("(\",\" w-ws " + *more + ")", least_more - 1, most_more < 0 ? -1 : most_more - 1);
      if (least_more == 0) list = "(" + list + ")?";
    }
  }
  for (std::int64_t i = std::min(n_first, most < 0 ? n_first : most); i-- > 0;) {
    list = (i > 0 ? "\",\" w-ws " : "") + leading[static_cast<std::size_t>(i)] + (list.empty() ? "" : " " + list);
    if (i >= least) list = "(" + list + ")?";
    if (list.size() > 2000) list = rules_.add(list);
  }
  return rules_.add("\"[\" w-ws " + list + " w-ws \"]\"");
}

SchemaRules::Converter::Text SchemaRules::Converter::set(const OrderedJson& item, std::int64_t least, std::int64_t most,
                                                         const std::string& place, int depth, bool& is_held) {
  const OrderedJson flat = flattened(item, place, depth);
  const OrderedJson* values = enumeration(flat, place);
  if (values == nullptr) return std::nullopt;
  name_unknown(flat, place + ".items");
  const OrderedJson rest = without(flat, "enum");
  std::vector<std::string> literals;
  for (const OrderedJson& value : *values) {
    if (literals.size() > kMostOfSet) return std::nullopt;
    if (!accepts(rest, value, place, depth)) continue;
    const std::string text = literal(value);
    if (std::find(literals.begin(), literals.end(), text) == literals.end()) literals.push_back(text);
  }
  if (literals.size() > kMostOfSet) return std::nullopt;
  is_held = true;
  const auto n = static_cast<std::int64_t>(literals.size());
  if (most < 0 || most > n) most = n;
  if (least > most) return std::nullopt;
  if (most == 0) return "\"[]\"";
  // There is a rule for each set of values that are left, with what may follow; it uses the rules of smaller sets.
  std::vector<std::string> names(std::size_t{1} << literals.size());
  for (std::size_t left = 0; left < names.size(); ++left) {
    const std::int64_t n_taken = n - std::popcount(left);
    std::string text = n_taken >= least ? "\"\"" : "";
    for (std::size_t i = 0; i < literals.size() && n_taken < most; ++i) {
      if ((left >> i & 1) == 0) continue;
      text += (text.empty() ? "" : " | ") + std::string(n_taken > 0 ? "\",\" w-ws " : "") + literals[i] + " " +
              names[left & ~(std::size_t{1} << i)];
    }
    names[left] = rules_.add(text);
  }
  return rules_.add("\"[\" w-ws " + names.back() + " w-ws \"]\"");
}

std::set<std::string> SchemaRules::Converter::required_names(const OrderedJson& schema, const std::string& place) {
  std::set<std::string> names;
  const auto required = schema.find("required");
  if (required == schema.end()) return names;
  if (required->is_boolean()) return names;  // the third draft has it in the property itself
  check(required->is_array(), place, "'required' must be a list of names");
  for (const OrderedJson& name : *required) {
    check(name.is_string(), place, "'required' must be a list of names");
    names.insert(name.get<std::string>());
  }
  return names;
}

OrderedJson SchemaRules::Converter::properties_of(const OrderedJson& schema, const std::string& place) {
  OrderedJson properties = OrderedJson::object();
  if (schema.contains("properties")) {
    check(schema["properties"].is_object(), place, "'properties' must be an object");
    properties = schema["properties"];
  }
  const OrderedJson others = said(schema, "additionalProperties", true);
  if (schema.contains("propertyNames") && properties.empty() && !schema.contains("patternProperties")) {
    const OrderedJson names = flattened(schema["propertyNames"], place, 0);
    if (const OrderedJson* values = enumeration(names, place)) {
      for (const OrderedJson& name : *values) {
        if (name.is_string() && properties.size() < kMostProperties) properties[name.get<std::string>()] = others;
      }
    }
  }
  const std::set<std::string> required = required_names(schema, place);
  if (std::max(properties.size(), required.size()) > kMostProperties) {
    refuse(place, "it has more than " + std::to_string(kMostProperties) + " properties");
  }
  for (const std::string& name : required) {
    if (!properties.contains(name)) properties[name] = others;
  }
  const auto patterns = schema.find("patternProperties");
  if (patterns == schema.end() || !patterns->is_object()) return properties;
  // The schemas of the patterns that match a name apply to it, too. additionalProperties then does not apply to a name
  // that is only required.
  for (auto& [name, property] : properties.items()) {
    OrderedJson said = OrderedJson::array();
    if (schema.contains("properties") && schema["properties"].contains(name)) said.push_back(property);
    bool is_matched = false;
    for (const auto& [pattern, values] : patterns->items()) {
      if (!accepts_text({{"pattern", pattern}}, name, place)) continue;
      said.push_back(values);
      is_matched = true;
    }
    if (is_matched) property = {{"allOf", said}};
  }
  return properties;
}

SchemaRules::Converter::Text SchemaRules::Converter::object(const OrderedJson& schema, const std::string& place,
                                                            int depth) {
  const std::set<std::string> required = required_names(schema, place);
  const OrderedJson properties = properties_of(schema, place);
  std::int64_t least = 0, most = -1;
  if (!counts(schema, place, "Properties", least, most)) return std::nullopt;
  if (properties.empty()) return map(schema, least, most, place, depth);

  std::vector<Property> allowed;
  std::optional<OrderedJson> names;
  if (schema.contains("propertyNames")) names = flattened(schema["propertyNames"], place, depth);
  if (names && names->is_object()) name_unknown(*names, place + ".propertyNames");
  for (const auto& [name, property] : properties.items()) {
    const std::string its_place = place + "." + name.substr(0, 60);
    const bool is_required = required.contains(name);
    const bool is_named = !names || accepts(*names, OrderedJson(name), place, depth);
    const Text text = is_named ? expression(property, its_place, depth + 1) : std::nullopt;
    if (!text && is_required) {
      return none("'" + name.substr(0, 60) + "' is required" + (why_.empty() ? "" : ", and " + why_));
    }
    if (!text && property != false) warn(its_place, "no value matches it, so it never occurs");
    if (text) allowed.push_back({rules_.add(name_literal(name) + " w-ws " + *text), is_required});
  }
  if (least == 0 && most < 0) return simple_object(allowed);
  const auto n = static_cast<std::int64_t>(allowed.size());
  if (most < 0 || most > n) most = n;
  if (least > most) return std::nullopt;
  if (most > kMostCounted && most < n) {
    leave_out(place, "'maxProperties' may be at most " + std::to_string(kMostCounted));
    most = n;
  }
  if (least > kMostCounted) {
    leave_out(place, "'minProperties' may be at most " + std::to_string(kMostCounted));
    least = 0;
  }
  return counted_object(allowed, least, most);
}

std::string SchemaRules::Converter::simple_object(const std::vector<Property>& properties) {
  std::string rest, start;
  for (auto property = properties.rbegin(); property != properties.rend(); ++property) {
    const auto& [rule, is_required] = *property;
    const std::string first = rule + (rest.empty() ? "" : " " + rest);
    start = is_required ? first : "(" + first + " | " + (start.empty() ? "\"\"" : start) + ")";
    start = rules_.add(start);
    const std::string next = is_required ? "\",\" w-ws " + rule : "(\",\" w-ws " + rule + ")?";
    rest = rules_.add(next + (rest.empty() ? "" : " " + rest));
  }
  return rules_.add("\"{\" w-ws " + (start.empty() ? "\"\"" : start) + " w-ws \"}\"");
}

SchemaRules::Converter::Text SchemaRules::Converter::counted_object(const std::vector<Property>& properties,
                                                                    std::int64_t least, std::int64_t most) {
  const bool is_bounded = most < static_cast<std::int64_t>(properties.size());
  const auto n_counts = static_cast<std::size_t>(is_bounded ? most : least) + 1;
  std::vector<Text> rest(n_counts);
  for (std::size_t i = 0; i < n_counts; ++i) {
    if (static_cast<std::int64_t>(i) >= least) rest[i] = "\"\"";
  }
  for (auto property = properties.rbegin(); property != properties.rend(); ++property) {
    const auto& [rule, is_required] = *property;
    std::vector<Text> here(n_counts);
    for (std::size_t i = 0; i < n_counts; ++i) {
      const bool is_full = i + 1 == n_counts;
      const Text none;
      const Text& behind = is_full ? (is_bounded ? none : rest[i]) : rest[i + 1];
      std::vector<std::string> choices;
      if (behind) choices.push_back((i > 0 ? "\",\" w-ws " : "") + rule + " " + *behind);
      if (!is_required && rest[i]) choices.push_back(*rest[i]);
      if (!choices.empty()) here[i] = rules_.add(in_parentheses(choices));
    }
    rest = std::move(here);
  }
  if (!rest[0]) return std::nullopt;
  return rules_.add("\"{\" w-ws " + *rest[0] + " w-ws \"}\"");
}

SchemaRules::Converter::Text SchemaRules::Converter::map(const OrderedJson& schema, std::int64_t least,
                                                         std::int64_t most, const std::string& place, int depth) {
  static const OrderedJson kAny = true;
  const OrderedJson& others = schema.contains("additionalProperties") ? schema["additionalProperties"] : kAny;
  TextConditions names;
  std::vector<std::string> pairs;
  if (schema.contains("propertyNames")) {
    const OrderedJson names_schema = flattened(schema["propertyNames"], place, depth);
    if (names_schema == false) {
      names.least = 1;
      names.most = 0;
    } else {
      name_unknown(names_schema, place + ".propertyNames");
      names = text_conditions(names_schema, place + ".propertyNames");
    }
  }
  const auto add_pairs = [&](const TextConditions& of, const OrderedJson& values, const std::string& its_place) {
    if (of.most < of.least) return;
    const bool is_free = of.matched.empty() && of.unmatched.empty() && of.least == 0 && of.most == Pattern::kUnbounded;
    const Text name = is_free ? Text("w-name") : free_name(of, its_place);
    const Text value = name ? expression(values, its_place, depth + 1) : std::nullopt;
    if (!value) return;
    pairs.push_back(*name + " w-ws " + *value);
  };
  TextConditions unnamed = names;
  if (schema.contains("patternProperties")) {
    const OrderedJson& patterns = schema["patternProperties"];
    check(patterns.is_object(), place, "'patternProperties' must be an object");
    std::vector<std::pair<Pattern, const OrderedJson*>> all;
    for (const auto& [pattern, values] : patterns.items()) {
      if (auto parsed = pattern_of(pattern, place)) all.emplace_back(std::move(*parsed), &values);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      TextConditions of = names;
      of.matched.push_back(all[i].first);
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (k != i) of.unmatched.push_back(all[k].first);
      }
      add_pairs(of, *all[i].second, place + ".patternProperties");
      unnamed.unmatched.push_back(all[i].first);
    }
  }
  const bool is_any = !schema.contains("patternProperties") && !schema.contains("propertyNames");
  if (is_any && others == true && least == 0 && most < 0) return "w-object";
  add_pairs(unnamed, others, place + ".additionalProperties");
  if (pairs.empty()) most = 0;
  if (most >= 0 && least > most) return std::nullopt;
  if (most == 0) return "\"{}\"";
  if (least > 1) warn(place, "'minProperties' also counts repeated names");
  const std::string pair = rules_.add(in_parentheses(pairs));
  std::string list = pair + " " + repeated("(\",\" w-ws " + pair + ")", least - 1, most < 0 ? -1 : most - 1);
  if (least == 0) list = "(" + list + ")?";
  return rules_.add("\"{\" w-ws " + list + " w-ws \"}\"");
}
}  // namespace winnow
