// The converter that implements SchemaRules (schema_grammar.h), one class in five sources: schema_grammar.cc
// (references, types and what joins them), schema_scalars.cc (numbers and texts), schema_containers.cc (arrays and
// objects), schema_values.cc (the values that a schema accepts, and schemas without some of them) and schema_one_of.cc
// (schemas that exclude each other). Only these include it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schema/json_text.h"
#include "schema/number_pattern.h"
#include "schema/pattern_grammar.h"
#include "schema/schema_grammar.h"
#include "schema/schema_merge.h"
#include "winnow/error.h"

namespace winnow {

using OrderedJson = nlohmann::ordered_json;

// Rules that others use. White space is bounded, since a small model would fill its answer with it.
inline constexpr const char* kJsonTexts =
    "w-char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "w-string ::= \"\\\"\" w-char* \"\\\"\"\n"
    "w-name ::= w-string \":\"\n";
inline constexpr const char* kCommonRules =
    "w-ws ::= | \" \" | \"\\n\" [ ]{0,16}\n"
    "w-integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "w-number ::= w-integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
    "w-boolean ::= \"true\" | \"false\"\n"
    "w-null ::= \"null\"\n"
    "w-pair ::= w-name w-ws w-value\n"
    "w-object ::= \"{\" w-ws (w-pair (\",\" w-ws w-pair)*)? w-ws \"}\"\n"
    "w-array ::= \"[\" w-ws (w-value (\",\" w-ws w-value)*)? w-ws \"]\"\n"
    "w-value ::= w-object | w-array | w-string | w-number | w-boolean | w-null\n";

inline constexpr std::size_t kMostSchemaBytes = std::size_t{4} << 20;
inline constexpr int kMostLevels = 64;
inline constexpr int kMostNames = 50'000;
inline constexpr int kMostValues = 100'000;
// The most properties of one object; they are looked up one after the other.
inline constexpr std::size_t kMostProperties = 2'000;
// The most values in all schemas, joined ones included, from which one grammar is made.
inline constexpr std::size_t kMostSteps = 2'000'000;
inline constexpr int kMostNested = 100;
inline constexpr std::size_t kMostWarnings = 50;
// The most bytes of our own patterns for numbers between bounds.
inline constexpr std::size_t kMostBytesOfNumber = 1'000'000;
// The largest count. A larger maximum restricts nothing and a larger minimum matches nothing, since no text is as long.
inline constexpr std::int64_t kMostCount = 1'000'000'000;
// The limits for what a grammar follows value by value: the values of a set, and the number of properties.
inline constexpr std::size_t kMostOfSet = 8;
inline constexpr std::int64_t kMostCounted = 64;

// The keyword for properties that no other keyword of a schema applies to, its parts and references included.
inline constexpr const char* kUnevaluated = "unevaluatedProperties";

inline const std::string kPlainNumber = "^-?(?:0|[1-9]\\d{0,15})(?:\\.\\d{1,16})?$",
                         kPlainInteger = "^-?(?:0|[1-9]\\d{0,15})$";

// The quote of Gemma's notation, at both ends of a text.
inline constexpr const char* kGemmaQuote = "<|\"|>";

// Returns a value as a notation writes it.
inline std::string written(const OrderedJson& value, ValueNotation notation) {
  if (notation == ValueNotation::kJson) return text_of(value);
  if (value.is_string()) return kGemmaQuote + value.get<std::string>() + kGemmaQuote;
  if (!value.is_structured()) return text_of(value);
  std::string text;
  for (const auto& [name, one] : value.items()) {
    text += (text.empty() ? "" : ",") + (value.is_object() ? name + ":" : "") + written(one, notation);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

inline std::string in_parentheses(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) text += (text.empty() ? "" : " | ") + choice;
  return choices.size() == 1 ? text : "(" + text + ")";
}

// Returns the schema without a keyword.
inline OrderedJson without(OrderedJson schema, const std::string& keyword) {
  schema.erase(keyword);
  return schema;
}

// Returns the value of a keyword, or `otherwise` if the schema does not have it.
inline OrderedJson said(const OrderedJson& schema, const std::string& keyword, OrderedJson otherwise) {
  const auto found = schema.find(keyword);
  if (found != schema.end()) otherwise = *found;
  return otherwise;
}

inline bool is_type_name(const std::string& name) {
  static const std::set<std::string> all = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return all.contains(name);
}

// Returns the pattern of a text of exactly these characters.
inline Pattern whole_literal(const std::string& text) {
  Pattern pattern = Pattern::literal(text);
  pattern.children.insert(pattern.children.begin(), {.kind = Pattern::Kind::kBegin});
  pattern.children.push_back({.kind = Pattern::Kind::kEnd});
  return pattern;
}

// The implementation of SchemaRules. An expression is nullopt if no value matches.
class SchemaRules::Converter {
 public:
  using Text = std::optional<std::string>;

  Converter(Use use, ValueNotation notation) : use_(use), notation_(notation), rules_("w-") {
    if (notation != ValueNotation::kGemma) return;
    const TextConditions conditions{.unmatched = {Pattern::literal(kGemmaQuote)}};
    const std::string quote = grammar_literal(kGemmaQuote);
    texts_ = "w-string ::= " + quote + " " + *text_grammar(conditions, TextForm::kPlain, rules_, limits_) + " " +
             quote + "\nw-name ::= [^:}\\x00-\\x1F]{1,100} \":\"\n";
  }

  void begin(std::string subject, const OrderedJson& document);

  std::string value(const OrderedJson& schema, const std::string& place);

  Text plain_text(const OrderedJson& schema, const std::string& place, const std::string& end) {
    return told(place, [&] { return constrained_text(schema, place, end); });
  }

  Text constrained_text(const OrderedJson& schema, const std::string& place, const std::string& end);

  std::vector<Member> members(const OrderedJson& schema, const std::string& place);

  OrderedJson items(const OrderedJson& schema, const std::string& place);

  // Returns the types by the schema's `type` or enumerated values, of which an integer counts as "number".
  std::set<std::string> types(const OrderedJson& schema, const std::string& place);

  std::string rules() const { return rules_.text() + texts_ + kCommonRules; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string literal(const OrderedJson& value) const { return grammar_literal(written(value, notation_)); }

  std::string name_literal(const std::string& name) const {
    return grammar_literal((notation_ == ValueNotation::kJson ? text_of(name) : name) + ":");
  }

  // Returns the expression of a text between the quotes of the notation.
  std::string quoted(const std::string& text) const {
    const std::string quote = grammar_literal(notation_ == ValueNotation::kJson ? "\"" : kGemmaQuote);
    return quote + " " + text + " " + quote;
  }

  // Returns the expression of a text that stands in quotes, without them.
  Text text_in_quotes(TextConditions conditions, const std::string& place) {
    if (notation_ == ValueNotation::kJson) return text_rule(conditions, TextForm::kJson, place);
    conditions.unmatched.push_back(Pattern::literal(kGemmaQuote));
    return text_rule(conditions, TextForm::kPlain, place);
  }

  // Returns the expression of a free name in a map, with the colon after it.
  Text free_name(TextConditions conditions, const std::string& place);

  [[noreturn]] void refuse(const std::string& place, const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, subject_ + " cannot be used: " + what + " (at " + place + ")");
  }

  [[noreturn]] void refuse_empty(const std::string& place) const {
    refuse(place, "nothing matches it" + (why_.empty() ? "" : ": " + why_));
  }

  // Runs `work`. The errors of lower parts, about patterns and sizes, become sentences about the schema.
  template <typename Work>
  auto told(const std::string& place, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with(subject_)) throw;
      refuse(place, error.what());
    }
  }

  // Records why no value is left, and returns nullopt.
  std::nullopt_t none(const std::string& why) {
    why_ = why;
    return std::nullopt;
  }

  void warn(const std::string& place, const std::string& what);

  // Refuses what cannot be enforced in a promise, and leaves it out of advice with a warning.
  void leave_out(const std::string& place, const std::string& what) {
    if (use_ == Use::kPromise) refuse(place, what);
    warn(place, what + "; it is left out");
  }

  // Refuses a malformed schema.
  void check(bool is_well, const std::string& place, const std::string& what) {
    if (!is_well) refuse(place, what);
  }

  // Returns the number of values in a schema, itself included.
  static std::size_t size_of(const OrderedJson& schema);

  void step(const std::string& place, int depth, std::size_t n = 1) {
    n_steps_ += n;
    if (n_steps_ > kMostSteps) refuse(place, "it has too many parts when all of them are joined: simplify it");
    if (depth > kMostNested) refuse(place, "it is nested too deeply, or refers to itself without end");
  }

  // --- What a schema says, in one object ---------------------------------------------------------------------------

  const OrderedJson& target_of(const OrderedJson& reference, const std::string& place);

  static std::string decoded(const std::string& pointer);

  void find_identifiers(const OrderedJson& schema, int depth);

  static const char* reference_in(const OrderedJson& schema);

  // Returns the schema without $ref, allOf, oneOf and const, which are replaced by what they require; true becomes {}.
  OrderedJson flattened(const OrderedJson& given, const std::string& place, int depth);

  // Returns the schema of what both match, and counts its steps.
  OrderedJson joined(const OrderedJson& a, const OrderedJson& b, const std::string& place, int depth);

  // Does the same as flattened for a schema that is joined with others. If unevaluatedProperties remain they are
  // refused or left out, since they know nothing of the others.
  OrderedJson part_of(const OrderedJson& part, const std::string& place, int depth);

  // Returns the schema with the unevaluatedProperties of `given` as additionalProperties. Next to alternatives, each of
  // which has properties of its own, the keyword stays.
  static OrderedJson with_unevaluated(OrderedJson schema, const OrderedJson& given);

  // Returns the alternatives of its anyOf, each joined with the keywords next to it.
  std::vector<OrderedJson> options_of(const OrderedJson& schema, const std::string& place);

  const OrderedJson* enumeration(const OrderedJson& schema, const std::string& place);

  // --- Expressions ------------------------------------------------------------------------------------------------

  Text expression(const OrderedJson& schema, const std::string& place, int depth);

  std::string deferred(const OrderedJson& schema, const std::string& place);

  Text open(const OrderedJson& given, const std::string& place, int depth);

  // Refuses or leaves out keywords that are not supported, and warns of unknown ones.
  void name_unknown(const OrderedJson& schema, const std::string& place);

  Text typed(const OrderedJson& schema, const std::string& place, int depth);

  Text of_type(const std::string& name, const OrderedJson& schema, const std::string& place, int depth);

  std::int64_t count(const OrderedJson& schema, const std::string& place, const char* name, std::int64_t fallback);

  // Reads the bounds of a number of things; `most` is -1 if there is none. Returns false if no number is within them.
  bool counts(const OrderedJson& schema, const std::string& place, const std::string& of, std::int64_t& least,
              std::int64_t& most);

  static std::string repeated(const std::string& item, std::int64_t least, std::int64_t most) {
    return item + "{" + std::to_string(std::max<std::int64_t>(least, 0)) + "," +
           (most < 0 ? "" : std::to_string(most)) + "}";
  }

  // --- Numbers ----------------------------------------------------------------------------------------------------

  Text number(const OrderedJson& schema, const std::string& place, bool is_integer);

  NumberBounds bounds_of(const OrderedJson& schema, const std::string& place);

  Decimal decimal(const OrderedJson& value, const std::string& place, const std::string& keyword);

  // Returns the values of a keyword: one, or several if schemas were joined.
  static std::vector<OrderedJson> all_of(const OrderedJson& schema, const std::string& keyword);

  // --- Strings ----------------------------------------------------------------------------------------------------

  TextConditions text_conditions(const OrderedJson& schema, const std::string& place);

  std::optional<Pattern> pattern_of(const std::string& text, const std::string& place);

  // Returns an expression for the texts that meet the conditions, or nullopt if none does.
  Text text_rule(const TextConditions& conditions, TextForm form, const std::string& place);

  Text string(const OrderedJson& schema, const std::string& place);

  // --- Lists ------------------------------------------------------------------------------------------------------

  Text array(const OrderedJson& schema, const std::string& place, int depth);

  // Returns the expression of a list of different values out of a few. Sets `is_held` if there are few enough.
  Text set(const OrderedJson& item, std::int64_t least, std::int64_t most, const std::string& place, int depth,
           bool& is_held);

  // --- Objects ----------------------------------------------------------------------------------------------------

  std::set<std::string> required_names(const OrderedJson& schema, const std::string& place);

  // Returns the properties, with those that are only required, or named by propertyNames.
  OrderedJson properties_of(const OrderedJson& schema, const std::string& place);

  Text object(const OrderedJson& schema, const std::string& place, int depth);

  struct Property {
    std::string rule;  // of its name and value
    bool is_required;
  };

  // Builds the object from its end: `rest` is what may follow a property, `start` is the object if no property came
  // before.
  std::string simple_object(const std::vector<Property>& properties);

  // Does the same, by the number of properties that came before. Returns nullopt if no number of them is allowed.
  Text counted_object(const std::vector<Property>& properties, std::int64_t least, std::int64_t most);

  // Returns the expression of an object whose names are free.
  Text map(const OrderedJson& schema, std::int64_t least, std::int64_t most, const std::string& place, int depth);

  // --- not --------------------------------------------------------------------------------------------------------

  // Returns the expression of a schema with "not", which is rewritten as what is allowed.
  Text without_excluded(const OrderedJson& schema, const std::string& place, int depth);

  // Adds alternatives that together are `schema` without what `excluded` matches. Returns false if that is not
  // possible.
  bool exclude(const OrderedJson& schema, const OrderedJson& excluded, std::vector<OrderedJson>& more,
               const std::string& place, int depth);

  static std::set<std::string> types_of_values(const OrderedJson& values);

  static bool exclude_values(OrderedJson one, const std::string& type, const OrderedJson& values,
                             std::vector<OrderedJson>& more);

  static void add_to(OrderedJson& schema, const char* keyword, const OrderedJson& what) {
    if (!schema.contains(keyword) || !schema[keyword].is_array()) schema[keyword] = OrderedJson::array();
    schema[keyword].push_back(what);
  }

  // Any of several keywords may be the one that does not hold, so each of them gives an alternative.
  static bool exclude_texts(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more);

  static bool exclude_numbers(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more);

  bool exclude_objects(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more,
                       const std::string& place, int depth);

  // --- oneOf ------------------------------------------------------------------------------------------------------

  // Returns whether no value that is written for the first matches the second; false if that is not known.
  bool is_apart(const OrderedJson& first, const OrderedJson& second, const std::string& place, int depth);

  // Does the same for values of a type and schemas without references and alternatives.
  bool is_apart_as(const std::string& type, const OrderedJson& a, const OrderedJson& b, const std::string& place,
                   int depth);

  // Restricts the first to values that do not match the second. Returns false if that is not possible.
  bool set_apart(OrderedJson& first, const OrderedJson& second, OrderedJson& restriction, const std::string& place,
                 int depth);

  // Returns the alternatives of a oneOf: what is written for one matches no other. `beside` has the keywords next to
  // it.
  OrderedJson exactly_one(const OrderedJson& options, const OrderedJson& beside, const std::string& place, int depth);

  // --- Whether a value follows a schema ------------------------------------------------------------------------------

  static bool type_matches(const OrderedJson& value, const std::string& type);

  // Returns whether a value follows a schema. Unknown keywords count as met.
  bool accepts(const OrderedJson& given, const OrderedJson& value, const std::string& place, int depth);

  bool accepts_text(const OrderedJson& schema, const std::string& text, const std::string& place);

  bool accepts_number(const OrderedJson& schema, const OrderedJson& value, const std::string& place);

  bool accepts_list(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth);

  bool accepts_object(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth);

  Use use_;
  ValueNotation notation_;
  AutomatonLimits limits_;          // for all texts
  std::string texts_ = kJsonTexts;  // the rules of texts and names
  std::string subject_;
  const OrderedJson* document_ = nullptr;
  GrammarRules rules_;
  std::vector<std::string> warnings_;
  std::size_t n_steps_ = 0;
  std::string why_;                                          // why no value matched last
  std::unordered_map<std::string, std::string> references_;  // rules of schemas that refer to others, by their text
  std::optional<std::map<std::string, const OrderedJson*>> identifiers_;  // schemas by $id and $anchor
  std::unordered_map<std::string, OrderedJson> told_apart_;               // alternatives of a oneOf, by its text
  std::map<std::string, std::unique_ptr<TextAutomaton>> automata_;        // automata of strings, by their conditions
  std::deque<OrderedJson> made_;
  struct Open {
    std::string rule;
    const OrderedJson* schema;
    std::string place;
  };
  std::deque<Open> open_;  // rules whose content is still to be written
};

}  // namespace winnow
