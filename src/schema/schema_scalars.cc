// The expressions for numbers and strings.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "schema/schema_converter.h"

namespace winnow {

namespace {

struct BoundKeyword {
  const char* name;
  std::optional<Bound> NumberBounds::*bound;
  bool is_excluded;
};

constexpr BoundKeyword kBoundKeywords[] = {
    {.name = "minimum", .bound = &NumberBounds::least, .is_excluded = false},
    {.name = "exclusiveMinimum", .bound = &NumberBounds::least, .is_excluded = true},
    {.name = "maximum", .bound = &NumberBounds::most, .is_excluded = false},
    {.name = "exclusiveMaximum", .bound = &NumberBounds::most, .is_excluded = true},
};

}  // namespace

NumberBounds SchemaRules::Converter::bounds_of(const OrderedJson& schema, const std::string& place) {
  NumberBounds bounds;
  for (const BoundKeyword& keyword : kBoundKeywords) {
    const auto found = schema.find(keyword.name);
    if (found == schema.end() || found->is_null()) continue;
    std::optional<Bound>& bound = bounds.*keyword.bound;
    if (found->is_boolean() && keyword.is_excluded) {
      // Drafts before the sixth have a boolean here: it says whether the bound next to it is excluded.
      if (bound && *found == true) bound->is_excluded = true;
      continue;
    }
    check(found->is_number(), place, std::string("'") + keyword.name + "' must be a number");
    const Decimal number = decimal(*found, place, keyword.name);
    const bool is_lower = bound && number.is_below(bound->number);
    const bool is_higher = bound && bound->number.is_below(number);
    const bool is_looser = keyword.bound == &NumberBounds::least ? is_lower : is_higher;
    if (is_looser) continue;
    const bool is_same = bound && !is_lower && !is_higher;
    bound = {number, keyword.is_excluded || (is_same && bound->is_excluded)};
  }
  return bounds;
}

SchemaRules::Converter::Text SchemaRules::Converter::number(const OrderedJson& schema, const std::string& place,
                                                            bool is_integer) {
  const NumberBounds bounds = bounds_of(schema, place);
  std::vector<Step> steps;
  for (const OrderedJson& one : all_of(schema, "multipleOf")) {
    check(one.is_number() && one > 0, place, "'multipleOf' must be a number above 0");
    if (const auto step = Step::parse(decimal(one, place, "multipleOf"))) {
      const bool is_any = is_integer && step->factor == 1 && step->n_digits >= 0;
      if (!is_any) steps.push_back(*step);
    } else {
      leave_out(place, "'multipleOf' " + text_of(one) +
                           " is not supported: it may have five digits, besides leading and trailing zeros");
    }
  }
  const bool is_bounded = bounds.least || bounds.most;
  const std::vector<OrderedJson> excluded = all_of(schema, kUnmatchedNumbers);
  if (!is_bounded && steps.empty() && excluded.empty()) return is_integer ? "w-integer" : "w-number";
  std::string pattern = is_integer ? kPlainInteger : kPlainNumber;
  try {
    if (is_bounded) pattern = is_integer ? integer_pattern(bounds) : number_pattern(bounds);
  } catch (const Error&) {
    return none("no number lies between its bounds");
  }
  TextConditions conditions{.matched = {Pattern::parse(pattern, kMostBytesOfNumber)}, .steps = steps};
  for (const OrderedJson& value : excluded) {
    if (!value.is_number()) continue;
    const Decimal number = decimal(value, place, "not");
    std::string digits = (number.is_negative ? "-" : "") + number.integer;
    if (!number.fraction.empty()) digits += "\\." + number.fraction;
    const std::string zeros = number.fraction.empty() ? "(?:\\.0*)?" : "0*";
    conditions.unmatched.push_back(Pattern::parse(
        "^" + std::string(number.integer == "0" && number.fraction.empty() ? "-?" : "") + digits + zeros + "$"));
  }
  return text_rule(conditions, TextForm::kPlain, place);
}

Decimal SchemaRules::Converter::decimal(const OrderedJson& value, const std::string& place,
                                        const std::string& keyword) {
  try {
    return Decimal::parse(text_of(value));
  } catch (const Error& error) {
    refuse(place, "'" + keyword + "': " + error.what());
  }
}

std::vector<OrderedJson> SchemaRules::Converter::all_of(const OrderedJson& schema, const std::string& keyword) {
  if (const auto list = schema.find(" " + keyword); list != schema.end() && list->is_array()) {
    return {list->begin(), list->end()};
  }
  const auto one = schema.find(keyword);
  if (one == schema.end()) return {};
  if (keyword.starts_with('~')) {
    return one->is_array() ? std::vector<OrderedJson>(one->begin(), one->end()) : std::vector<OrderedJson>();
  }
  return {*one};
}

TextConditions SchemaRules::Converter::text_conditions(const OrderedJson& schema, const std::string& place) {
  TextConditions conditions;
  std::int64_t least = 0, most = -1;
  if (!counts(schema, place, "Length", least, most)) {
    conditions.least = 1;
    conditions.most = 0;
    return conditions;
  }
  conditions.least = static_cast<std::uint32_t>(least);
  if (most >= 0) conditions.most = static_cast<std::uint32_t>(most);
  for (const OrderedJson& one : all_of(schema, "pattern")) {
    check(one.is_string(), place, "'pattern' must be a string");
    if (auto pattern = pattern_of(one.get<std::string>(), place)) conditions.matched.push_back(std::move(*pattern));
  }
  // A format without other conditions gets its bounded pattern; lengths that restrict it no further are ignored.
  constexpr std::uint32_t kLongest = 2'000;
  const bool is_alone = conditions.matched.empty() && all_of(schema, "format").size() == 1 && conditions.least <= 1 &&
                        conditions.most >= kLongest && !schema.contains(kUnmatchedTexts) && use_ == Use::kPromise;
  for (const OrderedJson& one : all_of(schema, "format")) {
    check(one.is_string(), place, "'format' must be a string");
    const auto name = one.get<std::string>();
    if (const FormatPatterns* format = format_patterns(name)) {
      conditions.matched.push_back(is_alone ? format->bounded : format->loose);
    } else {
      warn(place, "'format' " + name.substr(0, 60) + " is unknown and is not enforced");
    }
  }
  for (const OrderedJson& one : all_of(schema, kUnmatchedTexts)) {
    if (!one.is_object()) continue;
    for (const auto& [kind, text] : one.items()) {
      if (!text.is_string()) continue;
      if (kind == "is") {
        conditions.unmatched.push_back(whole_literal(text.get<std::string>()));
      } else if (kind == "format") {
        if (const auto* format = format_patterns(text.get<std::string>())) {
          conditions.unmatched.push_back(format->loose);
        }
      } else if (auto pattern = pattern_of(text.get<std::string>(), place)) {
        conditions.unmatched.push_back(std::move(*pattern));
      }
    }
  }
  return conditions;
}

std::optional<Pattern> SchemaRules::Converter::pattern_of(const std::string& text, const std::string& place) {
  try {
    return Pattern::parse(text);
  } catch (const Error& error) {
    leave_out(place, error.what());
    return std::nullopt;
  }
}

SchemaRules::Converter::Text SchemaRules::Converter::text_rule(const TextConditions& conditions, TextForm form,
                                                               const std::string& place) {
  if (conditions.most < conditions.least) return std::nullopt;
  try {
    return text_grammar(conditions, form, rules_, limits_);
  } catch (const Error& error) {
    TextConditions fewer = conditions;
    leave_out(place, error.what());
    // The lengths are dropped first, since they make most automata large.
    if (fewer.least > 0 || fewer.most != Pattern::kUnbounded) {
      fewer.least = 0;
      fewer.most = Pattern::kUnbounded;
      return text_rule(fewer, form, place);
    }
    if (!fewer.matched.empty()) {
      fewer.matched.pop_back();
      return text_rule(fewer, form, place);
    }
    return text_grammar({}, form, rules_, limits_);
  }
}

SchemaRules::Converter::Text SchemaRules::Converter::string(const OrderedJson& schema, const std::string& place) {
  TextConditions conditions = text_conditions(schema, place);
  const bool is_free = conditions.matched.empty() && conditions.unmatched.empty();
  if (is_free && conditions.least == 0 && conditions.most == Pattern::kUnbounded) return "w-string";
  Text text = text_in_quotes(conditions, place);
  const bool has_format = schema.contains("format") && schema.contains("pattern");
  if (!text && has_format) {
    // A format says less than a pattern next to it, and authors of schemas sometimes mean something else by it.
    warn(place, "'format' and 'pattern' contradict each other: only the pattern is used");
    text = text_in_quotes(text_conditions(without(schema, "format"), place), place);
  }
  if (!text) return std::nullopt;
  return rules_.add(quoted(*text));
}
}  // namespace winnow
