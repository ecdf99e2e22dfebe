// The converter behind SchemaRules (schema_grammar.h), one class in five sources: schema_grammar.cc (references, types
// and what joins them), schema_scalars.cc (numbers and texts), schema_containers.cc (arrays and objects),
// schema_values.cc (which values a schema takes, and what is left of it without some) and schema_one_of.cc (which
// schemas exclude each other). For these alone.
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

#include "schema/number_pattern.h"
#include "schema/pattern_grammar.h"
#include "schema/schema_grammar.h"
#include "schema/schema_merge.h"
#include "winnow/error.h"

namespace winnow {

using OrderedJson = nlohmann::ordered_json;

// Rules that others use. White space is bounded: a small model would fill its answer with it.
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
// Of one object: they are looked up one after the other.
inline constexpr std::size_t kMostProperties = 2'000;
// Values in all schemas, joined ones included, that one grammar is made of.
inline constexpr std::size_t kMostSteps = 2'000'000;
inline constexpr int kMostNested = 100;
inline constexpr std::size_t kMostWarnings = 50;
// Of our own patterns of numbers between bounds.
inline constexpr std::size_t kMostBytesOfNumber = 1'000'000;
// Counts beyond it say nothing: no text is as long.
inline constexpr std::int64_t kMostCount = 1'000'000'000;
// Of what a grammar follows value by value: sets of so many values, and numbers of properties.
inline constexpr std::size_t kMostOfSet = 8;
inline constexpr std::int64_t kMostCounted = 64;

// What holds for the properties that nothing else in a schema speaks of, its parts and references included.
inline constexpr const char* kUnevaluated = "unevaluatedProperties";

inline const std::string kPlainNumber = "^-?(?:0|[1-9]\\d{0,15})(?:\\.\\d{1,16})?$",
                         kPlainInteger = "^-?(?:0|[1-9]\\d{0,15})$";

inline std::string text_of(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// What Gemma's texts stand between.
inline constexpr const char* kGemmaQuote = "<|\"|>";

// As a notation writes it.
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

// The schema without a keyword.
inline OrderedJson without(OrderedJson schema, const std::string& keyword) {
  schema.erase(keyword);
  return schema;
}

// What a keyword says.
inline OrderedJson said(const OrderedJson& schema, const std::string& keyword, OrderedJson otherwise) {
  const auto found = schema.find(keyword);
  if (found != schema.end()) otherwise = *found;
  return otherwise;
}

inline bool is_type_name(const std::string& name) {
  static const std::set<std::string> all = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return all.contains(name);
}

// A pattern of exactly these characters.
inline Pattern whole_literal(const std::string& text) {
  Pattern pattern = Pattern::literal(text);
  pattern.children.insert(pattern.children.begin(), {.kind = Pattern::Kind::kBegin});
  pattern.children.push_back({.kind = Pattern::Kind::kEnd});
  return pattern;
}

// Expressions are nothing where no value matches.
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

  // By what its type or its values say; "integer" is a number, too.
  std::set<std::string> types(const OrderedJson& schema, const std::string& place);

  std::string rules() const { return rules_.text() + texts_ + kCommonRules; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string literal(const OrderedJson& value) const { return grammar_literal(written(value, notation_)); }

  std::string name_literal(const std::string& name) const {
    return grammar_literal((notation_ == ValueNotation::kJson ? text_of(name) : name) + ":");
  }

  // A text between what the notation has for quotes.
  std::string quoted(const std::string& text) const {
    const std::string quote = grammar_literal(notation_ == ValueNotation::kJson ? "\"" : kGemmaQuote);
    return quote + " " + text + " " + quote;
  }

  // The expression of a text in quotes.
  Text text_in_quotes(TextConditions conditions, const std::string& place) {
    if (notation_ == ValueNotation::kJson) return text_rule(conditions, TextForm::kJson, place);
    conditions.unmatched.push_back(Pattern::literal(kGemmaQuote));
    return text_rule(conditions, TextForm::kPlain, place);
  }

  // A name of a map, with what is behind it.
  Text free_name(TextConditions conditions, const std::string& place);

  [[noreturn]] void refuse(const std::string& place, const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, subject_ + " cannot be used: " + what + " (at " + place + ")");
  }

  [[noreturn]] void refuse_empty(const std::string& place) const {
    refuse(place, "nothing matches it" + (why_.empty() ? "" : ": " + why_));
  }

  // With what lower parts say, of patterns and sizes, as a sentence about the schema.
  template <typename Work>
  auto told(const std::string& place, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with(subject_)) throw;
      refuse(place, error.what());
    }
  }

  // No value is left, for this reason.
  std::nullopt_t none(const std::string& why) {
    why_ = why;
    return std::nullopt;
  }

  void warn(const std::string& place, const std::string& what);

  // What a promise is refused for and advice is left out with.
  void leave_out(const std::string& place, const std::string& what) {
    if (use_ == Use::kPromise) refuse(place, what);
    warn(place, what + "; it is left out");
  }

  // What is malformed.
  void check(bool is_well, const std::string& place, const std::string& what) {
    if (!is_well) refuse(place, what);
  }

  // Values in a schema, itself included.
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

  // Without $ref, allOf, oneOf and const, which become what they say; true is {}.
  OrderedJson flattened(const OrderedJson& given, const std::string& place, int depth);

  // Likewise of a schema that is joined with others, which its unevaluatedProperties know nothing of.
  OrderedJson part_of(const OrderedJson& part, const std::string& place, int depth);

  // What `given` says of properties that nothing else speaks of, as additionalProperties; beside alternatives, of which
  // each speaks of its own, it stays.
  static OrderedJson with_unevaluated(OrderedJson schema, const OrderedJson& given);

  // The alternatives of its anyOf, each with what stands beside it.
  std::vector<OrderedJson> options_of(const OrderedJson& schema, const std::string& place);

  const OrderedJson* enumeration(const OrderedJson& schema, const std::string& place);

  // --- Expressions ------------------------------------------------------------------------------------------------

  Text expression(const OrderedJson& schema, const std::string& place, int depth);

  std::string deferred(const OrderedJson& schema, const std::string& place);

  Text open(const OrderedJson& given, const std::string& place, int depth);

  // Keywords that hold something which is not known here.
  void name_unknown(const OrderedJson& schema, const std::string& place);

  Text typed(const OrderedJson& schema, const std::string& place, int depth);

  Text of_type(const std::string& name, const OrderedJson& schema, const std::string& place, int depth);

  std::int64_t count(const OrderedJson& schema, const std::string& place, const char* name, std::int64_t fallback);

  // From `least` to `most` of something; -1: any number. False: none can be.
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

  // What a keyword says, once or, joined, several times.
  static std::vector<OrderedJson> all_of(const OrderedJson& schema, const std::string& keyword);

  // --- Strings ----------------------------------------------------------------------------------------------------

  TextConditions text_conditions(const OrderedJson& schema, const std::string& place);

  std::optional<Pattern> pattern_of(const std::string& text, const std::string& place);

  // An expression for what the conditions hold for; nothing: no text does.
  Text text_rule(const TextConditions& conditions, TextForm form, const std::string& place);

  Text string(const OrderedJson& schema, const std::string& place);

  // --- Lists ------------------------------------------------------------------------------------------------------

  Text array(const OrderedJson& schema, const std::string& place, int depth);

  // A list of different values out of a few.
  Text set(const OrderedJson& item, std::int64_t least, std::int64_t most, const std::string& place, int depth,
           bool& is_held);

  // --- Objects ----------------------------------------------------------------------------------------------------

  std::set<std::string> required_names(const OrderedJson& schema, const std::string& place);

  // With those that are only required, or named by propertyNames.
  OrderedJson properties_of(const OrderedJson& schema, const std::string& place);

  Text object(const OrderedJson& schema, const std::string& place, int depth);

  // Backwards: `rest` is what may follow where a property went before, `start` where none did.
  std::string simple_object(const std::vector<std::pair<std::string, bool>>& pairs);

  // As simple_object, by how many properties went before. Nothing: no number of them is as it has to be.
  Text counted_object(const std::vector<std::pair<std::string, bool>>& pairs, std::int64_t least, std::int64_t most);

  // An object whose names are free.
  Text map(const OrderedJson& schema, std::int64_t least, std::int64_t most, const std::string& place, int depth);

  // --- not --------------------------------------------------------------------------------------------------------

  // What of a schema is left by its "not": rewritten as what is allowed.
  Text without_excluded(const OrderedJson& schema, const std::string& place, int depth);

  // Adds alternatives that together are `schema` without what `excluded` matches. False: it cannot be done.
  bool exclude(const OrderedJson& schema, const OrderedJson& excluded, std::vector<OrderedJson>& more,
               const std::string& place, int depth);

  static std::set<std::string> types_of_values(const OrderedJson& values);

  static bool exclude_values(OrderedJson one, const std::string& type, const OrderedJson& values,
                             std::vector<OrderedJson>& more);

  static void add_to(OrderedJson& schema, const char* keyword, const OrderedJson& what) {
    if (!schema.contains(keyword) || !schema[keyword].is_array()) schema[keyword] = OrderedJson::array();
    schema[keyword].push_back(what);
  }

  // Each of several keywords may be what does not hold.
  static bool exclude_texts(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more);

  static bool exclude_numbers(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more);

  static bool exclude_objects(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more);

  // --- oneOf ------------------------------------------------------------------------------------------------------

  // No value that is written for the first follows the second. False where that is not known.
  bool is_apart(const OrderedJson& first, const OrderedJson& second, const std::string& place, int depth);

  // Likewise of values of a type, for schemas without references and alternatives.
  bool is_apart_as(const std::string& type, const OrderedJson& a, const OrderedJson& b, const std::string& place,
                   int depth);

  // Restricts the first to what does not follow the second. False: it cannot be done.
  bool set_apart(OrderedJson& first, const OrderedJson& second, OrderedJson& restriction, const std::string& place,
                 int depth);

  // Alternatives for a oneOf: what is written for one follows no other. `beside`: what stands there as well.
  OrderedJson exactly_one(const OrderedJson& options, const OrderedJson& beside, const std::string& place, int depth);

  // --- Whether a value follows a schema ------------------------------------------------------------------------------

  static bool type_matches(const OrderedJson& value, const std::string& type);

  // What it does not know of a schema holds.
  bool accepts(const OrderedJson& given, const OrderedJson& value, const std::string& place, int depth);

  bool accepts_text(const OrderedJson& schema, const std::string& text, const std::string& place);

  bool accepts_number(const OrderedJson& schema, const OrderedJson& value, const std::string& place);

  bool accepts_list(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth);

  bool accepts_object(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth);

  Use use_;
  ValueNotation notation_;
  AutomatonLimits limits_;          // of all texts
  std::string texts_ = kJsonTexts;  // the rules of texts and names
  std::string subject_;
  const OrderedJson* document_ = nullptr;
  GrammarRules rules_;
  std::vector<std::string> warnings_;
  std::size_t n_steps_ = 0;
  std::string why_;                                          // nothing matched last
  std::unordered_map<std::string, std::string> references_;  // schemas that refer to others, as text, to their rules
  std::optional<std::map<std::string, const OrderedJson*>> identifiers_;  // what $id and $anchor name
  std::unordered_map<std::string, OrderedJson> told_apart_;               // lists of a oneOf, as text
  std::map<std::string, std::unique_ptr<TextAutomaton>> automata_;        // of what strings are, as text
  std::deque<OrderedJson> made_;
  struct Open {
    std::string rule;
    const OrderedJson* schema;
    std::string place;
  };
  std::deque<Open> open_;  // what their rules say is still to be found out
};

}  // namespace winnow
