#include "schema/schema_grammar.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/utf8.h"
#include "schema/schema_converter.h"
#include "winnow/json_grammar.h"

namespace winnow {

void SchemaRules::Converter::begin(std::string subject, const OrderedJson& document) {
  subject_ = std::move(subject);
  if (document_ == &document) return;
  document_ = &document;
  // The same words refer to something else in another document.
  references_.clear();
  told_apart_.clear();
  identifiers_.reset();
}

std::string SchemaRules::Converter::value(const OrderedJson& schema, const std::string& place) {
  return told(place, [&] {
    const Text text = expression(schema, place, 0);
    // These rules are not written where they are referred to, since references may follow each other thousands deep,
    // and in circles.
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

SchemaRules::Converter::Text SchemaRules::Converter::constrained_text(const OrderedJson& schema,
                                                                      const std::string& place,
                                                                      const std::string& end) {
  const OrderedJson flat = flattened(schema, place, 0);
  std::vector<std::string> choices;
  for (const OrderedJson& one : options_of(flat, place)) {
    const OrderedJson option = flattened(one, place, 0);
    if (const OrderedJson* values = enumeration(option, place)) {
      const OrderedJson rest = without(without(option, "enum"), "const");
      for (const OrderedJson& value : *values) {
        if (!value.is_string() || !accepts(rest, value, place, 0)) continue;
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

std::vector<SchemaRules::Member> SchemaRules::Converter::members(const OrderedJson& schema, const std::string& place) {
  const OrderedJson flat = flattened(schema, place, 0);
  std::vector<Member> all;
  std::set<std::string> known;
  for (const OrderedJson& one : options_of(flat, place)) {
    const OrderedJson option = flattened(one, place, 0);
    if (!option.is_object()) continue;
    const std::set<std::string> required = required_names(option, place);
    const OrderedJson properties = properties_of(option, place);
    for (const auto& [name, property] : properties.items()) {
      if (!known.insert(name).second) continue;
      all.push_back({name, property, required.contains(name)});
    }
  }
  return all;
}

OrderedJson SchemaRules::Converter::items(const OrderedJson& schema, const std::string& place) {
  const OrderedJson flat = flattened(schema, place, 0);
  OrderedJson item = true;
  if (flat.is_object()) item = said(flat, "items", true);
  if (item.is_array()) item = true;
  return item;
}

std::set<std::string> SchemaRules::Converter::types(const OrderedJson& schema, const std::string& place) {
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

SchemaRules::Converter::Text SchemaRules::Converter::free_name(TextConditions conditions, const std::string& place) {
  if (notation_ == ValueNotation::kJson) {
    const Text text = text_rule(conditions, TextForm::kJson, place);
    return text ? Text(quoted(*text) + " \":\"") : std::nullopt;
  }
  conditions.unmatched.push_back(Pattern::parse("[:}]|^$"));
  const Text text = text_rule(conditions, TextForm::kPlain, place);
  return text ? Text(*text + " \":\"") : std::nullopt;
}

void SchemaRules::Converter::warn(const std::string& place, const std::string& what) {
  const std::string warning = subject_ + ": " + what + " (at " + place + ")";
  if (warnings_.size() < kMostWarnings && std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
    warnings_.push_back(warning);
  }
}

std::size_t SchemaRules::Converter::size_of(const OrderedJson& schema) {
  std::size_t n = 1;
  if (schema.is_structured()) {
    for (const OrderedJson& child : schema) n += size_of(child);
  }
  return n;
}

const OrderedJson& SchemaRules::Converter::target_of(const OrderedJson& reference, const std::string& place) {
  check(reference.is_string(), place, "'$ref' must be a string");
  const auto name = reference.get<std::string>();
  if (name == "#" || name.starts_with("#/")) {
    try {
      return document_->at(OrderedJson::json_pointer(decoded(name.substr(1))));
    } catch (const OrderedJson::exception&) {
      refuse(place, "'$ref' points to '" + name + "', which does not exist");
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

std::string SchemaRules::Converter::decoded(const std::string& pointer) {
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

void SchemaRules::Converter::find_identifiers(const OrderedJson& schema, int depth) {
  if (depth > kMostNested || !schema.is_structured()) return;
  if (schema.is_object()) {
    for (const auto& [keyword, prefix] :
         {std::pair{"$id", ""}, {"id", ""}, {"$anchor", "#"}, {"$dynamicAnchor", "#"}}) {
      const auto found = schema.find(keyword);
      if (found != schema.end() && found->is_string()) {
        identifiers_->emplace(prefix + found->get<std::string>(), &schema);
      }
    }
  }
  for (const OrderedJson& child : schema) find_identifiers(child, depth + 1);
}

const char* SchemaRules::Converter::reference_in(const OrderedJson& schema) {
  if (!schema.is_object()) return nullptr;
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    if (schema.contains(keyword)) return keyword;
  }
  return nullptr;
}

OrderedJson SchemaRules::Converter::flattened(const OrderedJson& given, const std::string& place, int depth) {
  const OrderedJson* last = &given;
  std::set<const OrderedJson*> seen;
  while (const char* keyword = reference_in(*last)) {
    const OrderedJson& target = target_of((*last)[keyword], place);
    if (!seen.insert(&target).second) refuse(place, "it refers to itself without end");
    if (!has_only_annotations(without(*last, keyword))) {
      step(place, depth, size_of(*last));
      const OrderedJson rest = without(without(*last, keyword), kUnevaluated);
      const OrderedJson target_part = part_of(target, place, depth + 1);
      return with_unevaluated(joined(target_part, flattened(rest, place, depth + 1), place, depth), *last);
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
      schema = joined(schema, part_of(part, place, depth + 1), place, depth);
      if (!schema.is_object()) return schema;
    }
  }
  if (schema.contains("oneOf")) {
    const OrderedJson options = schema["oneOf"];
    schema.erase("oneOf");
    schema = merged(schema, {{"anyOf", exactly_one(options, schema, place, depth)}});
  }
  if (schema.contains("const")) {
    const OrderedJson value = schema["const"];
    schema.erase("const");
    schema = merged({{"enum", OrderedJson::array({value})}}, schema);
  }
  return with_unevaluated(schema, schema);
}

OrderedJson SchemaRules::Converter::joined(const OrderedJson& a, const OrderedJson& b, const std::string& place,
                                           int depth) {
  constexpr std::size_t kCopiesOfStep = 2, kLookUpsOfStep = 100;
  OrderedJson all = merged(a, b);
  // All of it has been copied, and names of keywords and of properties are looked up one after the other.
  const std::size_t n_properties = all.is_object() && all.contains("properties") ? all["properties"].size() : 0;
  const std::size_t n_look_ups = all.size() * b.size() + n_properties * n_properties;
  step(place, depth, 1 + size_of(all) / kCopiesOfStep + n_look_ups / kLookUpsOfStep);
  return all;
}

OrderedJson SchemaRules::Converter::part_of(const OrderedJson& part, const std::string& place, int depth) {
  OrderedJson schema = flattened(part, place, depth);
  if (schema.is_object() && schema.contains(kUnevaluated)) {
    leave_out(place, "'unevaluatedProperties' next to alternatives is not supported inside another schema");
    schema.erase(kUnevaluated);
  }
  return schema;
}

OrderedJson SchemaRules::Converter::with_unevaluated(OrderedJson schema, const OrderedJson& given) {
  const auto said = given.find(kUnevaluated);
  if (!schema.is_object() || said == given.end()) return schema;
  const OrderedJson others = *said;
  schema.erase(kUnevaluated);
  if (schema.contains("anyOf") || schema.contains(" anyOf")) {
    schema[kUnevaluated] = others;
  } else if (!schema.contains("additionalProperties")) {
    schema["additionalProperties"] = others;
  }
  return schema;
}

std::vector<OrderedJson> SchemaRules::Converter::options_of(const OrderedJson& schema, const std::string& place) {
  if (!schema.is_object() || !(schema.contains("anyOf") || schema.contains(" anyOf"))) return {schema};
  OrderedJson groups = OrderedJson::array();
  if (schema.contains(" anyOf")) {
    groups = schema[" anyOf"];
  } else {
    groups.push_back(schema["anyOf"]);
  }
  const OrderedJson rest = without(without(without(schema, "anyOf"), " anyOf"), kUnevaluated);
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
  if (schema.contains(kUnevaluated)) {
    for (OrderedJson& one : all) one = {{"allOf", {one}}, {kUnevaluated, schema[kUnevaluated]}};
  }
  if (schema.contains("nullable") && schema["nullable"] == true) all.push_back({{"type", "null"}});
  return all;
}

const OrderedJson* SchemaRules::Converter::enumeration(const OrderedJson& schema, const std::string& place) {
  const auto values = schema.is_object() ? schema.find("enum") : schema.end();
  if (!schema.is_object() || values == schema.end()) return nullptr;
  check(values->is_array() && !values->empty(), place, "'enum' must be a list of at least one value");
  return &*values;
}

SchemaRules::Converter::Text SchemaRules::Converter::expression(const OrderedJson& schema, const std::string& place,
                                                                int depth) {
  if (!schema.is_object()) return open(schema, place, depth);
  // A schema that refers to another one gets a rule of its own and is used by name, so that recursion ends.
  if (reference_in(schema) != nullptr || schema.contains("allOf")) return deferred(schema, place);
  return open(schema, place, depth);
}

std::string SchemaRules::Converter::deferred(const OrderedJson& schema, const std::string& place) {
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

SchemaRules::Converter::Text SchemaRules::Converter::open(const OrderedJson& given, const std::string& place,
                                                          int depth) {
  const OrderedJson schema = flattened(given, place, depth);
  if (schema == false) return std::nullopt;
  if (schema.contains("anyOf") || schema.contains(" anyOf")) {
    std::vector<std::string> choices;
    std::set<std::string> known;
    std::size_t i = 0;
    for (const OrderedJson& option : options_of(schema, place)) {
      const std::string its_place = place + ".anyOf[" + std::to_string(i++) + "]";
      // A joined schema gets no rule of its own, since it may be that no value matches it.
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

void SchemaRules::Converter::name_unknown(const OrderedJson& schema, const std::string& place) {
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
      warn(place, "'" + keyword.substr(0, 60) + "' is not a keyword of JSON Schema and is ignored");
    }
  }
}

SchemaRules::Converter::Text SchemaRules::Converter::typed(const OrderedJson& schema, const std::string& place,
                                                           int depth) {
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

SchemaRules::Converter::Text SchemaRules::Converter::of_type(const std::string& name, const OrderedJson& schema,
                                                             const std::string& place, int depth) {
  if (name == "object") return object(schema, place, depth);
  if (name == "array") return array(schema, place, depth);
  if (name == "string") return string(schema, place);
  if (name == "number" || name == "integer") return number(schema, place, name == "integer");
  return "w-" + name;
}

std::int64_t SchemaRules::Converter::count(const OrderedJson& schema, const std::string& place, const char* name,
                                           std::int64_t fallback) {
  const auto found = schema.find(name);
  if (found == schema.end() || found->is_null()) return fallback;
  const bool is_whole =
      found->is_number() && found->get<double>() >= 0 && found->get<double>() == std::floor(found->get<double>());
  check(is_whole, place, std::string("'") + name + "' must be a whole number of at least 0");
  const auto value = found->get<double>();
  return value > static_cast<double>(kMostCount) ? kMostCount + 1 : static_cast<std::int64_t>(value);
}

bool SchemaRules::Converter::counts(const OrderedJson& schema, const std::string& place, const std::string& of,
                                    std::int64_t& least, std::int64_t& most) {
  least = count(schema, place, ("min" + of).c_str(), 0);
  most = count(schema, place, ("max" + of).c_str(), -1);
  if (most > kMostCount) most = -1;
  if (least > kMostCount) return false;
  return most < 0 || least <= most;
}
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

namespace {

std::string what_is_wrong(JsonRefusal::Reason reason) {
  const auto more_than = [](std::size_t most, const char* what) { return "more than " + std::to_string(most) + what; };
  switch (reason) {
    case JsonRefusal::Reason::kLevels:
      return "it is nested deeper than " + std::to_string(kMostLevels) + " levels";
    case JsonRefusal::Reason::kNamesOfObject:
      return "an object has " + more_than(kMostProperties, " names");
    case JsonRefusal::Reason::kNames:
      return "it has " + more_than(kMostNames, " names");
    case JsonRefusal::Reason::kScalars:
      return "it has " + more_than(kMostValues, " values");
    default:
      return "it is not JSON";
  }
}

OrderedJson parse_schema(std::string_view text) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "the JSON schema cannot be used: " + what);
  };
  if (text.size() > kMostSchemaBytes) refuse("it is larger than 4 MiB");
  OrderedJson schema;
  try {
    schema = parse_bounded_json<OrderedJson>(
        text, {.levels = kMostLevels, .names_of_object = kMostProperties, .names = kMostNames, .scalars = kMostValues});
  } catch (const JsonRefusal& refusal) {
    refuse(what_is_wrong(refusal.reason));
  }
  return schema;
}

}  // namespace

std::string json_schema_grammar(std::string_view schema) { return schema_grammar(parse_schema(schema)); }

std::string json_object_grammar() { return std::string("root ::= w-object\n") + kJsonTexts + kCommonRules; }

}  // namespace winnow
