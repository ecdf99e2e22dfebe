#include "schema/schema_grammar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "schema/number_pattern.h"
#include "schema/pattern_grammar.h"
#include "schema/schema_merge.h"
#include "winnow/error.h"
#include "winnow/json_grammar.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Rules that others use. White space is bounded: a small model would fill its answer with it.
constexpr const char* kJsonTexts =
    "w-char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "w-string ::= \"\\\"\" w-char* \"\\\"\"\n"
    "w-name ::= w-string \":\"\n";
constexpr const char* kCommonRules =
    "w-ws ::= | \" \" | \"\\n\" [ ]{0,16}\n"
    "w-integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "w-number ::= w-integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
    "w-boolean ::= \"true\" | \"false\"\n"
    "w-null ::= \"null\"\n"
    "w-pair ::= w-name w-ws w-value\n"
    "w-object ::= \"{\" w-ws (w-pair (\",\" w-ws w-pair)*)? w-ws \"}\"\n"
    "w-array ::= \"[\" w-ws (w-value (\",\" w-ws w-value)*)? w-ws \"]\"\n"
    "w-value ::= w-object | w-array | w-string | w-number | w-boolean | w-null\n";

constexpr std::size_t kMostSchemaBytes = std::size_t{4} << 20;
constexpr int kMostLevels = 64;
constexpr int kMostNames = 50'000;
constexpr int kMostValues = 100'000;
// Of one object: they are looked up one after the other.
constexpr std::size_t kMostProperties = 2'000;
// Values in all schemas, joined ones included, that one grammar is made of.
constexpr std::size_t kMostSteps = 2'000'000;
constexpr int kMostNested = 100;
constexpr std::size_t kMostWarnings = 50;
// Of our own patterns of numbers between bounds.
constexpr std::size_t kMostBytesOfNumber = 1'000'000;
// Counts beyond it say nothing: no text is as long.
constexpr std::int64_t kMostCount = 1'000'000'000;
// Of what a grammar follows value by value: sets of so many values, and numbers of properties.
constexpr std::size_t kMostOfSet = 8;
constexpr std::int64_t kMostCounted = 64;

const std::string kPlainNumber = "^-?(?:0|[1-9]\\d{0,15})(?:\\.\\d{1,16})?$",
                  kPlainInteger = "^-?(?:0|[1-9]\\d{0,15})$";

std::string text_of(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// What Gemma's texts stand between.
constexpr const char* kGemmaQuote = "<|\"|>";

// As a notation writes it.
std::string written(const OrderedJson& value, ValueNotation notation) {
  if (notation == ValueNotation::kJson) return text_of(value);
  if (value.is_string()) return kGemmaQuote + value.get<std::string>() + kGemmaQuote;
  if (!value.is_structured()) return text_of(value);
  std::string text;
  for (const auto& [name, one] : value.items()) {
    text += (text.empty() ? "" : ",") + (value.is_object() ? name + ":" : "") + written(one, notation);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string in_parentheses(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) text += (text.empty() ? "" : " | ") + choice;
  return choices.size() == 1 ? text : "(" + text + ")";
}

// The schema without a keyword.
OrderedJson without(OrderedJson schema, const std::string& keyword) {
  schema.erase(keyword);
  return schema;
}

// What a keyword says.
OrderedJson said(const OrderedJson& schema, const std::string& keyword, OrderedJson otherwise) {
  const auto found = schema.find(keyword);
  if (found != schema.end()) otherwise = *found;
  return otherwise;
}

bool is_type_name(const std::string& name) {
  static const std::set<std::string> all = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return all.contains(name);
}

// A pattern of exactly these characters.
Pattern whole_literal(const std::string& text) {
  Pattern pattern = Pattern::literal(text);
  pattern.children.insert(pattern.children.begin(), {.kind = Pattern::Kind::kBegin});
  pattern.children.push_back({.kind = Pattern::Kind::kEnd});
  return pattern;
}

}  // namespace

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

  void begin(std::string subject, const OrderedJson& document) {
    subject_ = std::move(subject);
    if (document_ == &document) return;
    document_ = &document;
    // The same words in another document refer to something else.
    references_.clear();
    identifiers_.reset();
  }

  std::string value(const OrderedJson& schema, const std::string& place) {
    return told(place, [&] {
      const Text text = expression(schema, place, 0);
      // Not from where they are referred to: references may follow each other thousands deep, and in circles.
      for (; !open_.empty(); open_.pop_front()) {
        const auto& [rule, one, its_place] = open_.front();
        const Text inner = open(*one, its_place, 0);
        if (!inner) refuse_empty(its_place);
        rules_.define(rule, *inner);
      }
      if (!text) refuse_empty(place);
      return *text;
    });
  }

  Text plain_text(const OrderedJson& schema, const std::string& place, const std::string& end) {
    return told(place, [&] { return constrained_text(schema, place, end); });
  }

  Text constrained_text(const OrderedJson& schema, const std::string& place, const std::string& end) {
    const OrderedJson flat = flattened(schema, place, 0);
    std::vector<std::string> choices;
    for (const OrderedJson& one : options_of(flat, place)) {
      const OrderedJson option = flattened(one, place, 0);
      if (const OrderedJson* values = enumeration(option, place)) {
        for (const OrderedJson& value : *values) {
          if (!value.is_string() || !accepts(without(without(option, "enum"), "const"), value, place, 0)) continue;
          const std::string text = value.get<std::string>();
          if (text.find(end) == std::string::npos) choices.push_back(grammar_literal(text));
        }
        continue;
      }
      if (!option.is_object() || !types_of(option).contains("string")) continue;
      if (types_of(option).size() > 1) return std::nullopt;
      TextConditions conditions = text_conditions(option, place);
      if (conditions.matched.empty() && conditions.unmatched.empty() && conditions.least == 0 &&
          conditions.most == Pattern::kUnbounded) {
        return std::nullopt;
      }
      conditions.unmatched.push_back(Pattern::literal(end));
      if (const Text text = text_rule(conditions, TextForm::kPlain, place)) choices.push_back(*text);
    }
    if (choices.empty()) return std::nullopt;
    return rules_.add(in_parentheses(choices));
  }

  std::vector<Member> members(const OrderedJson& schema, const std::string& place) {
    const OrderedJson flat = flattened(schema, place, 0);
    std::vector<Member> all;
    for (const OrderedJson& one : options_of(flat, place)) {
      const OrderedJson option = flattened(one, place, 0);
      if (!option.is_object()) continue;
      const std::set<std::string> required = required_names(option, place);
      const OrderedJson properties = properties_of(option, place);
      for (const auto& [name, property] : properties.items()) {
        const auto is_it = [&, &name = name](const Member& member) { return member.name == name; };
        if (std::any_of(all.begin(), all.end(), is_it)) continue;
        all.push_back({name, property, required.contains(name)});
      }
    }
    return all;
  }

  OrderedJson items(const OrderedJson& schema, const std::string& place) {
    const OrderedJson flat = flattened(schema, place, 0);
    OrderedJson item = true;
    if (flat.is_object()) item = said(flat, "items", true);
    if (item.is_array()) item = true;
    return item;
  }

  // By what its type or its values say; "integer" is a number, too.
  std::set<std::string> types(const OrderedJson& schema, const std::string& place) {
    std::set<std::string> all;
    const OrderedJson flat = flattened(schema, place, 0);
    for (const OrderedJson& one : options_of(flat, place)) {
      const OrderedJson option = flattened(one, place, 0);
      if (!option.is_object() || has_only_annotations(option)) continue;
      const OrderedJson* values = enumeration(option, place);
      all.merge(values != nullptr ? types_of_values(*values) : types_of(option));
    }
    return all;
  }

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
  Text free_name(TextConditions conditions, const std::string& place) {
    if (notation_ == ValueNotation::kJson) {
      const Text text = text_rule(conditions, TextForm::kJson, place);
      return text ? Text(quoted(*text) + " \":\"") : std::nullopt;
    }
    conditions.unmatched.push_back(Pattern::parse("[:}]|^$"));
    const Text text = text_rule(conditions, TextForm::kPlain, place);
    return text ? Text(*text + " \":\"") : std::nullopt;
  }

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

  void warn(const std::string& place, const std::string& what) {
    const std::string warning = subject_ + ": " + what + " (at " + place + ")";
    if (warnings_.size() < kMostWarnings && std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
      warnings_.push_back(warning);
    }
  }

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
  static std::size_t size_of(const OrderedJson& schema) {
    std::size_t n = 1;
    if (schema.is_structured()) {
      for (const OrderedJson& child : schema) n += size_of(child);
    }
    return n;
  }

  void step(const std::string& place, int depth, std::size_t n = 1) {
    n_steps_ += n;
    if (n_steps_ > kMostSteps) refuse(place, "it has too many parts when all of them are joined: simplify it");
    if (depth > kMostNested) refuse(place, "it is nested too deeply, or refers to itself without end");
  }

  // --- What a schema says, in one object ---------------------------------------------------------------------------

  const OrderedJson& target_of(const OrderedJson& reference, const std::string& place) {
    check(reference.is_string(), place, "'$ref' must be a string");
    const auto name = reference.get<std::string>();
    if (name == "#" || name.starts_with("#/")) {
      try {
        return document_->at(OrderedJson::json_pointer(decoded(name.substr(1))));
      } catch (const OrderedJson::exception&) {
        refuse(place, "there is no '" + name + "'");
      }
    }
    if (!identifiers_) {
      identifiers_.emplace();
      find_identifiers(*document_, 0);
    }
    const auto found = identifiers_->find(name.ends_with('#') ? name.substr(0, name.size() - 1) : name);
    if (found == identifiers_->end()) {
      refuse(place, "'$ref' may point into the schema itself (#/$defs/...), not to '" + name + "'");
    }
    return *found->second;
  }

  static std::string decoded(const std::string& pointer) {
    std::string text;
    for (std::size_t i = 0; i < pointer.size(); ++i) {
      const auto is_hex = [&](std::size_t k) {
        return k < pointer.size() && std::isxdigit(static_cast<unsigned char>(pointer[k])) != 0;
      };
      if (pointer[i] == '%' && is_hex(i + 1) && is_hex(i + 2)) {
        text += static_cast<char>(std::stoi(pointer.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        text += pointer[i];
      }
    }
    return text;
  }

  void find_identifiers(const OrderedJson& schema, int depth) {
    if (depth > kMostNested || !schema.is_structured()) return;
    if (schema.is_object()) {
      for (const auto& [keyword, prefix] :
           {std::pair{"$id", ""}, {"id", ""}, {"$anchor", "#"}, {"$dynamicAnchor", "#"}}) {
        const auto found = schema.find(keyword);
        if (found != schema.end() && found->is_string())
          identifiers_->emplace(prefix + found->get<std::string>(), &schema);
      }
    }
    for (const OrderedJson& child : schema) find_identifiers(child, depth + 1);
  }

  static const char* reference_in(const OrderedJson& schema) {
    if (!schema.is_object()) return nullptr;
    for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
      if (schema.contains(keyword)) return keyword;
    }
    return nullptr;
  }

  // Without $ref, allOf and const, which become what they say; true is {}.
  OrderedJson flattened(const OrderedJson& given, const std::string& place, int depth) {
    const OrderedJson* last = &given;
    std::set<const OrderedJson*> seen;
    while (const char* keyword = reference_in(*last)) {
      const OrderedJson& target = target_of((*last)[keyword], place);
      if (!seen.insert(&target).second) refuse(place, "it refers to itself without end");
      if (!has_only_annotations(without(*last, keyword))) {
        step(place, depth, size_of(*last));
        OrderedJson rest = without(*last, keyword);
        return merged(flattened(target, place, depth + 1), flattened(rest, place, depth + 1));
      }
      last = &target;
    }
    if (last->is_boolean()) {
      if (*last == false) return false;
      return OrderedJson::object();
    }
    check(last->is_object(), place, "a schema must be an object, true or false");
    step(place, depth, size_of(*last));
    OrderedJson schema = *last;
    for (const char* keyword : {"$defs", "definitions"}) schema.erase(keyword);
    if (schema.contains("allOf")) {
      const OrderedJson parts = schema["allOf"];
      check(parts.is_array() && !parts.empty(), place, "'allOf' must be a list of at least one schema");
      schema.erase("allOf");
      for (const OrderedJson& part : parts) {
        schema = merged(schema, flattened(part, place, depth + 1));
        if (!schema.is_object()) return schema;
      }
    }
    if (schema.contains("oneOf")) {
      const OrderedJson options = schema["oneOf"];
      schema.erase("oneOf");
      schema = merged(schema, {{"anyOf", options}});
    }
    if (schema.contains("const")) {
      const OrderedJson value = schema["const"];
      schema.erase("const");
      schema = merged({{"enum", OrderedJson::array({value})}}, schema);
    }
    return schema;
  }

  // The alternatives of its anyOf, each with what stands beside it.
  std::vector<OrderedJson> options_of(const OrderedJson& schema, const std::string& place) {
    if (!schema.is_object() || !(schema.contains("anyOf") || schema.contains(" anyOf"))) return {schema};
    OrderedJson groups = OrderedJson::array();
    if (schema.contains(" anyOf")) {
      groups = schema[" anyOf"];
    } else {
      groups.push_back(schema["anyOf"]);
    }
    const OrderedJson rest = without(without(schema, "anyOf"), " anyOf");
    std::vector<OrderedJson> all{rest};
    for (const OrderedJson& options : groups) {
      check(options.is_array() && !options.empty(), place, "'anyOf' or 'oneOf' must be a list of at least one schema");
      std::vector<OrderedJson> more;
      for (const OrderedJson& one : all) {
        for (const OrderedJson& option : options) {
          step(place, 0, size_of(option) + size_of(one));
          if (has_only_annotations(one) && groups.size() == 1) {
            more.push_back(option);
          } else {
            more.push_back({{"allOf", {option, one}}});
          }
        }
      }
      all = std::move(more);
    }
    if (schema.contains("nullable") && schema["nullable"] == true) all.push_back({{"type", "null"}});
    return all;
  }

  const OrderedJson* enumeration(const OrderedJson& schema, const std::string& place) {
    const auto values = schema.is_object() ? schema.find("enum") : schema.end();
    if (!schema.is_object() || values == schema.end()) return nullptr;
    check(values->is_array() && !values->empty(), place, "'enum' must be a list of at least one value");
    return &*values;
  }

  // --- Expressions ------------------------------------------------------------------------------------------------

  Text expression(const OrderedJson& schema, const std::string& place, int depth) {
    if (!schema.is_object()) return open(schema, place, depth);
    // By name, so that there is an end: what refers to something has a rule of its own.
    if (reference_in(schema) != nullptr || schema.contains("allOf")) return deferred(schema, place);
    return open(schema, place, depth);
  }

  std::string deferred(const OrderedJson& schema, const std::string& place) {
    OrderedJson key = OrderedJson::object();
    for (const auto& [keyword, value] : schema.items()) {
      if (!is_annotation(keyword) || keyword == "nullable") key[keyword] = value;
    }
    const auto [known, is_new] = references_.try_emplace(text_of(key));
    if (!is_new) return known->second;
    const std::string rule = rules_.reserve();
    known->second = rule;
    made_.push_back(schema);
    const bool is_reference = schema.contains("$ref") && schema["$ref"].is_string();
    open_.push_back({rule, &made_.back(), is_reference ? schema["$ref"].get<std::string>() : place});
    return rule;
  }

  Text open(const OrderedJson& given, const std::string& place, int depth) {
    const OrderedJson schema = flattened(given, place, depth);
    if (schema == false) return std::nullopt;
    if (schema.contains("anyOf") || schema.contains(" anyOf")) {
      std::vector<std::string> choices;
      std::set<std::string> known;
      std::size_t i = 0;
      for (const OrderedJson& option : options_of(schema, place)) {
        const std::string its_place = place + ".anyOf[" + std::to_string(i++) + "]";
        // What is joined here has no rule of its own: it may be that nothing matches it.
        const bool is_joined = option.is_object() && option.contains("allOf");
        const Text text = is_joined ? open(option, its_place, depth + 1) : expression(option, its_place, depth + 1);
        if (text && known.insert(*text).second) choices.push_back(*text);
      }
      if (choices.empty()) return std::nullopt;
      return in_parentheses(choices);
    }
    name_unknown(schema, place);
    if (const OrderedJson* values = enumeration(schema, place)) {
      const OrderedJson rest = without(schema, "enum");
      const bool is_free = has_only_annotations(rest);
      std::vector<std::string> choices;
      for (const OrderedJson& value : *values) {
        if (is_free || accepts(rest, value, place, depth)) choices.push_back(literal(value));
      }
      const bool may_be_null = schema.contains("nullable") && schema["nullable"] == true;
      if (may_be_null && std::find(choices.begin(), choices.end(), "\"null\"") == choices.end()) {
        choices.emplace_back("\"null\"");
      }
      if (choices.empty()) return none("the other keywords allow none of its values");
      return rules_.add(in_parentheses(choices));
    }
    if (schema.contains("not") || schema.contains(" not")) return without_excluded(schema, place, depth);
    return typed(schema, place, depth);
  }

  // Keywords that hold something which is not known here.
  void name_unknown(const OrderedJson& schema, const std::string& place) {
    static const std::set<std::string> kUnsupported = {"if",
                                                       "then",
                                                       "else",
                                                       "dependentSchemas",
                                                       "dependentRequired",
                                                       "dependencies",
                                                       "contains",
                                                       "unevaluatedItems",
                                                       "$dynamicRef",
                                                       "extends",
                                                       "disallow",
                                                       "divisibleBy"};
    static const std::set<std::string> kKnown = {"type",
                                                 "enum",
                                                 "not",
                                                 " not",
                                                 "properties",
                                                 "required",
                                                 "additionalProperties",
                                                 "patternProperties",
                                                 "propertyNames",
                                                 "minProperties",
                                                 "maxProperties",
                                                 "unevaluatedProperties",
                                                 "items",
                                                 "prefixItems",
                                                 "minItems",
                                                 "maxItems",
                                                 "uniqueItems",
                                                 "minLength",
                                                 "maxLength",
                                                 "pattern",
                                                 " pattern",
                                                 "format",
                                                 " format",
                                                 "minimum",
                                                 "maximum",
                                                 "exclusiveMinimum",
                                                 "exclusiveMaximum",
                                                 "multipleOf",
                                                 " multipleOf",
                                                 kUnmatchedTexts,
                                                 kUnmatchedNumbers};
    for (const auto& [keyword, value] : schema.items()) {
      if (kKnown.contains(keyword) || is_annotation(keyword)) continue;
      if (kUnsupported.contains(keyword)) {
        leave_out(place, "'" + keyword + "' is not supported");
      } else {
        warn(place, "'" + keyword.substr(0, 60) + "' is no keyword of JSON Schema, and is passed over");
      }
    }
  }

  Text typed(const OrderedJson& schema, const std::string& place, int depth) {
    if (const auto type = schema.find("type"); type != schema.end()) {
      check(type->is_string() || type->is_array(), place, "'type' must be a string or a list of strings");
      const std::vector<OrderedJson> listed =
          type->is_array() ? std::vector<OrderedJson>(type->begin(), type->end()) : std::vector<OrderedJson>{*type};
      for (const OrderedJson& one : listed) {
        check(one.is_string(), place, "'type' must be a string or a list of strings");
        if (is_type_name(one.get<std::string>())) continue;
        leave_out(place, "there is no type '" + one.get<std::string>().substr(0, 60) + "'");
        return "w-value";
      }
      if (type->is_array() && type->empty()) return std::nullopt;
    }
    const std::set<std::string> types = types_of(schema);
    if (types.size() >= 6 && has_only_annotations(without(schema, "type"))) return "w-value";
    std::vector<std::string> choices;
    for (const char* name : {"object", "array", "string", "number", "integer", "boolean", "null"}) {
      if (!types.contains(name) || (name == std::string("integer") && types.contains("number"))) continue;
      if (const Text text = of_type(name, schema, place, depth)) choices.push_back(*text);
    }
    if (choices.empty()) return std::nullopt;
    return in_parentheses(choices);
  }

  Text of_type(const std::string& name, const OrderedJson& schema, const std::string& place, int depth) {
    if (name == "object") return object(schema, place, depth);
    if (name == "array") return array(schema, place, depth);
    if (name == "string") return string(schema, place);
    if (name == "number" || name == "integer") return number(schema, place, name == "integer");
    return "w-" + name;
  }

  std::int64_t count(const OrderedJson& schema, const std::string& place, const char* name, std::int64_t fallback) {
    const auto found = schema.find(name);
    if (found == schema.end() || found->is_null()) return fallback;
    const bool is_whole =
        found->is_number() && found->get<double>() >= 0 && found->get<double>() == std::floor(found->get<double>());
    check(is_whole, place, std::string("'") + name + "' must be a whole number from 0 on");
    const auto value = found->get<double>();
    return value > static_cast<double>(kMostCount) ? kMostCount + 1 : static_cast<std::int64_t>(value);
  }

  // From `least` to `most` of something; -1: any number. False: none can be.
  bool counts(const OrderedJson& schema, const std::string& place, const std::string& of, std::int64_t& least,
              std::int64_t& most) {
    least = count(schema, place, ("min" + of).c_str(), 0);
    most = count(schema, place, ("max" + of).c_str(), -1);
    if (most > kMostCount) most = -1;
    if (least > kMostCount) return false;
    return most < 0 || least <= most;
  }

  static std::string repeated(const std::string& item, std::int64_t least, std::int64_t most) {
    return item + "{" + std::to_string(std::max<std::int64_t>(least, 0)) + "," +
           (most < 0 ? "" : std::to_string(most)) + "}";
  }

  // --- Numbers ----------------------------------------------------------------------------------------------------

  Text number(const OrderedJson& schema, const std::string& place, bool is_integer) {
    NumberBounds bounds;
    const auto take = [&](const char* keyword, bool is_least, bool excludes) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || found->is_null()) return;
      if (found->is_boolean() && excludes) {
        // As drafts before the sixth had it: whether the bound beside it is excluded.
        std::optional<Decimal>& bound = is_least ? bounds.least : bounds.most;
        if (bound && *found == true) (is_least ? bounds.excludes_least : bounds.excludes_most) = true;
        return;
      }
      check(found->is_number(), place, std::string("'") + keyword + "' must be a number");
      const Decimal value = decimal(*found, place, keyword);
      std::optional<Decimal>& bound = is_least ? bounds.least : bounds.most;
      bool& is_excluded = is_least ? bounds.excludes_least : bounds.excludes_most;
      const bool is_tighter = !bound || (is_least ? bound->is_below(value) : value.is_below(*bound));
      const bool is_same = bound && !bound->is_below(value) && !value.is_below(*bound);
      if (!is_tighter && !is_same) return;
      is_excluded = excludes || (is_same && is_excluded);
      bound = value;
    };
    take("minimum", true, false);
    take("exclusiveMinimum", true, true);
    take("maximum", false, false);
    take("exclusiveMaximum", false, true);
    std::vector<Step> steps;
    for (const OrderedJson& one : all_of(schema, "multipleOf")) {
      check(one.is_number() && one > 0, place, "'multipleOf' must be a number above 0");
      if (const auto step = Step::parse(decimal(one, place, "multipleOf"))) {
        const bool is_any = is_integer && step->factor == 1 && step->n_digits >= 0;
        if (!is_any) steps.push_back(*step);
      } else {
        leave_out(place,
                  "'multipleOf' " + text_of(one) + " is not supported: it may have five digits between its zeros");
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

  Decimal decimal(const OrderedJson& value, const std::string& place, const std::string& keyword) {
    try {
      return Decimal::parse(text_of(value));
    } catch (const Error& error) {
      refuse(place, "'" + keyword + "': " + error.what());
    }
  }

  // What a keyword says, once or, joined, several times.
  static std::vector<OrderedJson> all_of(const OrderedJson& schema, const std::string& keyword) {
    if (const auto list = schema.find(" " + keyword); list != schema.end() && list->is_array()) {
      return {list->begin(), list->end()};
    }
    const auto one = schema.find(keyword);
    if (one == schema.end()) return {};
    if (keyword.starts_with('~'))
      return one->is_array() ? std::vector<OrderedJson>(one->begin(), one->end()) : std::vector<OrderedJson>();
    return {*one};
  }

  // --- Strings ----------------------------------------------------------------------------------------------------

  TextConditions text_conditions(const OrderedJson& schema, const std::string& place) {
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
    // Alone a format is of bounded length; lengths that say no more than it does are passed over.
    constexpr std::uint32_t kLongest = 2'000;
    const bool is_alone = conditions.matched.empty() && all_of(schema, "format").size() == 1 && conditions.least <= 1 &&
                          conditions.most >= kLongest && !schema.contains(kUnmatchedTexts) && use_ == Use::kPromise;
    for (const OrderedJson& one : all_of(schema, "format")) {
      check(one.is_string(), place, "'format' must be a string");
      const auto name = one.get<std::string>();
      if (const FormatPatterns* format = format_patterns(name)) {
        conditions.matched.push_back(is_alone ? format->bounded : format->loose);
      } else {
        warn(place, "'format' " + name.substr(0, 60) + " is not known: texts are not held to it");
      }
    }
    for (const OrderedJson& one : all_of(schema, kUnmatchedTexts)) {
      if (!one.is_object()) continue;
      for (const auto& [kind, text] : one.items()) {
        if (!text.is_string()) continue;
        if (kind == "is") {
          conditions.unmatched.push_back(whole_literal(text.get<std::string>()));
        } else if (kind == "format") {
          if (const auto* format = format_patterns(text.get<std::string>()))
            conditions.unmatched.push_back(format->loose);
        } else if (auto pattern = pattern_of(text.get<std::string>(), place)) {
          conditions.unmatched.push_back(std::move(*pattern));
        }
      }
    }
    return conditions;
  }

  std::optional<Pattern> pattern_of(const std::string& text, const std::string& place) {
    try {
      return Pattern::parse(text);
    } catch (const Error& error) {
      leave_out(place, error.what());
      return std::nullopt;
    }
  }

  // An expression for what the conditions hold for; nothing: no text does.
  Text text_rule(const TextConditions& conditions, TextForm form, const std::string& place) {
    if (conditions.most < conditions.least) return std::nullopt;
    try {
      return text_grammar(conditions, form, rules_, limits_);
    } catch (const Error& error) {
      TextConditions fewer = conditions;
      leave_out(place, error.what());
      // The lengths first: they are what makes most automata large.
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

  Text string(const OrderedJson& schema, const std::string& place) {
    TextConditions conditions = text_conditions(schema, place);
    const bool is_free = conditions.matched.empty() && conditions.unmatched.empty();
    if (is_free && conditions.least == 0 && conditions.most == Pattern::kUnbounded) return "w-string";
    Text text = text_in_quotes(conditions, place);
    const bool has_format = schema.contains("format") && schema.contains("pattern");
    if (!text && has_format) {
      // A format says less than the pattern that stands beside it, and schema makers mean it otherwise at times.
      warn(place, "'format' and 'pattern' contradict each other: the pattern holds");
      text = text_in_quotes(text_conditions(without(schema, "format"), place), place);
    }
    if (!text) return std::nullopt;
    return rules_.add(quoted(*text));
  }

  // --- Lists ------------------------------------------------------------------------------------------------------

  Text array(const OrderedJson& schema, const std::string& place, int depth) {
    std::int64_t least = 0, most = -1;
    if (!counts(schema, place, "Items", least, most)) return std::nullopt;
    static const OrderedJson kNone = OrderedJson::array(), kAny = true;
    const OrderedJson* first = &kNone;
    const OrderedJson* rest = &kAny;
    bool has_rest = false;
    if (schema.contains("prefixItems")) first = &schema["prefixItems"];
    if (schema.contains("items")) {
      if (schema["items"].is_array()) {
        // As drafts before 2020-12 had it.
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
      warn(place, "'uniqueItems' is not held: items may be alike");
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
      // A list of certain items has no more of them, unless it says so.
      const bool is_closed = n_first > 0 && !has_rest && least <= n_first;
      if (!is_closed) more = expression(*rest, place + ".items", depth + 1);
    }
    if (!more && (is_short || most < 0 || most > n_first)) most = n_first;
    if (least > most && most >= 0) return std::nullopt;
    // All of the leading ones where it does not say how few there may be.
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

  // A list of different values out of a few.
  Text set(const OrderedJson& item, std::int64_t least, std::int64_t most, const std::string& place, int depth,
           bool& is_held) {
    const OrderedJson flat = flattened(item, place, depth);
    const OrderedJson* values = enumeration(flat, place);
    if (values == nullptr) return std::nullopt;
    std::vector<std::string> literals;
    for (const OrderedJson& value : *values) {
      const std::string text = literal(value);
      if (!accepts(without(flat, "enum"), value, place, depth)) continue;
      if (std::find(literals.begin(), literals.end(), text) == literals.end()) literals.push_back(text);
    }
    if (literals.size() > kMostOfSet) return std::nullopt;
    is_held = true;
    const auto n = static_cast<std::int64_t>(literals.size());
    if (most < 0 || most > n) most = n;
    if (least > most) return std::nullopt;
    if (most == 0) return "\"[]\"";
    // By the values that are left, fewest first: what may follow.
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

  // --- Objects ----------------------------------------------------------------------------------------------------

  std::set<std::string> required_names(const OrderedJson& schema, const std::string& place) {
    std::set<std::string> names;
    const auto required = schema.find("required");
    if (required == schema.end()) return names;
    if (required->is_boolean()) return names;  // as the third draft had it, of the property itself
    check(required->is_array(), place, "'required' must be a list of names");
    for (const OrderedJson& name : *required) {
      check(name.is_string(), place, "'required' must be a list of names");
      names.insert(name.get<std::string>());
    }
    return names;
  }

  // With those that are only required, or named by propertyNames.
  OrderedJson properties_of(const OrderedJson& schema, const std::string& place) {
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
    // What a name's patterns say holds for it, too; one that is only required is no other name then.
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

  Text object(const OrderedJson& schema, const std::string& place, int depth) {
    const std::set<std::string> required = required_names(schema, place);
    const OrderedJson properties = properties_of(schema, place);
    if (schema.contains("unevaluatedProperties") && !schema["unevaluatedProperties"].is_boolean()) {
      leave_out(place, "'unevaluatedProperties' may be true or false");
    }
    std::int64_t least = 0, most = -1;
    if (!counts(schema, place, "Properties", least, most)) return std::nullopt;
    if (properties.empty()) return map(schema, least, most, place, depth);

    std::vector<std::pair<std::string, bool>> pairs;
    std::optional<OrderedJson> names;
    if (schema.contains("propertyNames")) names = flattened(schema["propertyNames"], place, depth);
    for (const auto& [name, property] : properties.items()) {
      const std::string its_place = place + "." + name.substr(0, 60);
      const bool is_required = required.contains(name);
      const bool is_named = !names || accepts(*names, OrderedJson(name), place, depth);
      const Text text = is_named ? expression(property, its_place, depth + 1) : std::nullopt;
      if (!text && is_required) {
        return none("'" + name.substr(0, 60) + "' is required" + (why_.empty() ? "" : ", and " + why_));
      }
      if (!text) warn(its_place, "no value matches it: it does not occur");
      if (text) pairs.emplace_back(rules_.add(name_literal(name) + " w-ws " + *text), is_required);
    }
    if (least == 0 && most < 0) return simple_object(pairs);
    const auto n = static_cast<std::int64_t>(pairs.size());
    if (most < 0 || most > n) most = n;
    if (least > most) return std::nullopt;
    if (most > kMostCounted && most < n) {
      leave_out(place, "'maxProperties' may be up to " + std::to_string(kMostCounted));
      most = n;
    }
    if (least > kMostCounted) {
      leave_out(place, "'minProperties' may be up to " + std::to_string(kMostCounted));
      least = 0;
    }
    return counted_object(pairs, least, most);
  }

  // Backwards: `rest` is what may follow where a property went before, `start` where none did.
  std::string simple_object(const std::vector<std::pair<std::string, bool>>& pairs) {
    std::string rest, start;
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      const auto& [rule, is_required] = *pair;
      const std::string first = rule + (rest.empty() ? "" : " " + rest);
      start = is_required ? first : "(" + first + " | " + (start.empty() ? "\"\"" : start) + ")";
      start = rules_.add(start);
      const std::string next = is_required ? "\",\" w-ws " + rule : "(\",\" w-ws " + rule + ")?";
      rest = rules_.add(next + (rest.empty() ? "" : " " + rest));
    }
    return rules_.add("\"{\" w-ws " + (start.empty() ? "\"\"" : start) + " w-ws \"}\"");
  }

  // As simple_object, by how many properties went before. Nothing: no number of them is as it has to be.
  Text counted_object(const std::vector<std::pair<std::string, bool>>& pairs, std::int64_t least, std::int64_t most) {
    const auto n_counts = static_cast<std::size_t>(most < static_cast<std::int64_t>(pairs.size()) ? most : least) + 1;
    const bool is_bounded = most < static_cast<std::int64_t>(pairs.size());
    std::vector<Text> rest(n_counts);
    for (std::size_t i = 0; i < n_counts; ++i) {
      if (static_cast<std::int64_t>(i) >= least) rest[i] = "\"\"";
    }
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      const auto& [rule, is_required] = *pair;
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

  // An object whose names are free.
  Text map(const OrderedJson& schema, std::int64_t least, std::int64_t most, const std::string& place, int depth) {
    static const OrderedJson kAny = true;
    static const OrderedJson kNone = false;
    const bool is_closed = schema.contains("unevaluatedProperties") && schema["unevaluatedProperties"] == false;
    const OrderedJson& others = schema.contains("additionalProperties") ? schema["additionalProperties"]
                                : is_closed                             ? kNone
                                                                        : kAny;
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
      const bool is_free =
          of.matched.empty() && of.unmatched.empty() && of.least == 0 && of.most == Pattern::kUnbounded;
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
    if (least > 1) warn(place, "'minProperties' counts names that are alike, too");
    const std::string pair = rules_.add(in_parentheses(pairs));
    std::string list = pair + " " + repeated("(\",\" w-ws " + pair + ")", least - 1, most < 0 ? -1 : most - 1);
    if (least == 0) list = "(" + list + ")?";
    return rules_.add("\"{\" w-ws " + list + " w-ws \"}\"");
  }

  // --- not --------------------------------------------------------------------------------------------------------

  // What of a schema is left by its "not": rewritten as what is allowed.
  Text without_excluded(const OrderedJson& schema, const std::string& place, int depth) {
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

  // Adds alternatives that together are `schema` without what `excluded` matches. False: it cannot be done.
  bool exclude(const OrderedJson& schema, const OrderedJson& excluded, std::vector<OrderedJson>& more,
               const std::string& place, int depth) {
    if (!schema.is_object() || schema.contains("anyOf") || schema.contains(" anyOf")) {
      for (const OrderedJson& option : options_of(schema, place)) {
        const OrderedJson flat = flattened(option, place, depth + 1);
        if (flat == false) continue;
        if (!flat.is_object() || flat.contains("anyOf") || !exclude(flat, excluded, more, place, depth + 1))
          return false;
      }
      return true;
    }
    if (excluded.contains("not") && has_only_annotations(without(excluded, "not"))) {
      more.push_back({{"allOf", {schema, excluded["not"]}}});
      return true;
    }
    const std::set<std::string> all_types = types_of(schema);
    const bool names_types = excluded.contains("type") || excluded.contains("enum");
    const std::set<std::string> out =
        excluded.contains("enum") ? types_of_values(excluded["enum"]) : types_of(excluded);
    OrderedJson base = without(schema, "type");
    base.erase("nullable");
    for (const std::string& type : all_types) {
      const bool is_number = type == "integer" || type == "number";
      const bool is_out = out.contains(type) || (type == "integer" && out.contains("number")) ||
                          (type == "number" && out.contains("integer"));
      OrderedJson one = base;
      one["type"] = type;
      if (!is_out) {
        // What the excluded one does not speak of: it matches there, unless it names its types.
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
        if (!exclude_objects(one, rest, more)) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  static std::set<std::string> types_of_values(const OrderedJson& values) {
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

  static bool exclude_values(OrderedJson one, const std::string& type, const OrderedJson& values,
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
      return false;  // lists and objects of certain values
    }
    more.push_back(std::move(one));
    return true;
  }

  static void add_to(OrderedJson& schema, const char* keyword, const OrderedJson& what) {
    if (!schema.contains(keyword) || !schema[keyword].is_array()) schema[keyword] = OrderedJson::array();
    schema[keyword].push_back(what);
  }

  // Each of several keywords may be what does not hold.
  static bool exclude_texts(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more) {
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

  static bool exclude_numbers(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more) {
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

  static bool exclude_objects(const OrderedJson& one, const OrderedJson& excluded, std::vector<OrderedJson>& more) {
    for (const auto& [keyword, value] : excluded.items()) {
      if (is_annotation(keyword)) continue;
      if (keyword != "required" || !value.is_array()) return false;
      for (const OrderedJson& name : value) {
        if (!name.is_string()) return false;
        more.push_back(merged(one, {{"properties", {{name.get<std::string>(), false}}}}));
      }
    }
    return true;
  }

  // --- Whether a value follows a schema ------------------------------------------------------------------------------

  static bool type_matches(const OrderedJson& value, const std::string& type) {
    if (type == "integer") {
      return value.is_number_integer() || (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    }
    return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
           (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
           (type == "array" && value.is_array()) || (type == "object" && value.is_object());
  }

  // What it does not know of a schema holds.
  bool accepts(const OrderedJson& given, const OrderedJson& value, const std::string& place, int depth) {
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
      // Types that there are not say nothing, of advice.
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

  bool accepts_text(const OrderedJson& schema, const std::string& text, const std::string& place) {
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

  bool accepts_number(const OrderedJson& schema, const OrderedJson& value, const std::string& place) {
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

  bool accepts_list(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth) {
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

  bool accepts_object(const OrderedJson& schema, const OrderedJson& value, const std::string& place, int depth) {
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
  std::map<std::string, std::unique_ptr<TextAutomaton>> automata_;        // of what strings are, as text
  std::deque<OrderedJson> made_;
  struct Open {
    std::string rule;
    const OrderedJson* schema;
    std::string place;
  };
  std::deque<Open> open_;  // what their rules say is still to be found out
};

SchemaRules::SchemaRules(Use use, ValueNotation notation) : converter_(std::make_unique<Converter>(use, notation)) {}
SchemaRules::~SchemaRules() = default;

void SchemaRules::begin(std::string subject, const OrderedJson& document) {
  converter_->begin(std::move(subject), document);
}
std::string SchemaRules::value(const OrderedJson& schema, const std::string& place) {
  return converter_->value(schema, place);
}
std::optional<std::string> SchemaRules::text(const OrderedJson& schema, const std::string& place,
                                             const std::string& end) {
  return converter_->plain_text(schema, place, end);
}
std::vector<SchemaRules::Member> SchemaRules::members(const OrderedJson& schema, const std::string& place) {
  return converter_->members(schema, place);
}
OrderedJson SchemaRules::items(const OrderedJson& schema, const std::string& place) {
  return converter_->items(schema, place);
}
std::set<std::string> SchemaRules::types(const OrderedJson& schema, const std::string& place) {
  return converter_->types(schema, place);
}
std::string SchemaRules::rules() const { return converter_->rules(); }
const std::vector<std::string>& SchemaRules::warnings() const { return converter_->warnings(); }

std::string schema_grammar(const OrderedJson& schema, std::vector<std::string>* warnings, SchemaRules::Use use) {
  SchemaRules rules(use);
  rules.begin("the JSON schema", schema);
  const std::string root = rules.value(schema, "schema");
  std::string grammar = "root ::= " + root + "\n" + rules.rules();
  if (warnings != nullptr) warnings->insert(warnings->end(), rules.warnings().begin(), rules.warnings().end());
  return grammar;
}

std::string json_schema_grammar(std::string_view schema) {
  const auto refuse_text = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "the JSON schema cannot be used: " + what);
  };
  if (schema.size() > kMostSchemaBytes) refuse_text("it has more than 4 MiB");
  int n_names = 0, n_values = 0;
  bool is_too_deep = false;
  std::vector<std::size_t> n_of_object(kMostLevels + 3);  // names, by the depth at which they stand
  bool is_too_wide = false;
  const auto is_small = [&](int depth, OrderedJson::parse_event_t event, OrderedJson&) {
    const auto level = static_cast<std::size_t>(std::min(depth, kMostLevels + 1));
    if (event == OrderedJson::parse_event_t::object_start) n_of_object[level + 1] = 0;
    if (event == OrderedJson::parse_event_t::key) {
      ++n_names;
      is_too_wide = is_too_wide || ++n_of_object[level] > kMostProperties;
    }
    n_values += event == OrderedJson::parse_event_t::value ? 1 : 0;
    is_too_deep = is_too_deep || depth > kMostLevels;
    return !is_too_deep && !is_too_wide && n_names <= kMostNames && n_values <= kMostValues;
  };
  const OrderedJson parsed = OrderedJson::parse(schema, is_small, /*allow_exceptions=*/false);
  if (is_too_deep) refuse_text("it is nested deeper than " + std::to_string(kMostLevels) + " levels");
  if (is_too_wide) refuse_text("an object has more than " + std::to_string(kMostProperties) + " names");
  if (n_names > kMostNames) refuse_text("it has more than " + std::to_string(kMostNames) + " names");
  if (n_values > kMostValues) refuse_text("it has more than " + std::to_string(kMostValues) + " values");
  if (parsed.is_discarded()) refuse_text("it is no JSON");
  return schema_grammar(parsed);
}

std::string json_object_grammar() { return std::string("root ::= w-object\n") + kJsonTexts + kCommonRules; }

}  // namespace winnow
