#include "generate/schema_grammar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "generate/number_grammar.h"
#include "generate/pattern_grammar.h"
#include "winnow/error.h"
#include "winnow/json_grammar.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Rules that others use. White space is bounded: a small model would fill its answer with it.
constexpr const char* kCommonRules =
    "ws ::= | \" \" | \"\\n\" [ ]{0,16}\n"
    "char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "pair ::= string \":\" ws value\n"
    "object ::= \"{\" ws (pair (\",\" ws pair)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "value ::= object | array | string | number | boolean | null\n";

constexpr std::size_t kMostSchemaBytes = 1 << 20;
constexpr int kMostLevels = 64;
constexpr int kMostNames = 4096;
constexpr int kMostValues = 100'000;
constexpr std::int64_t kMostRepeats = 1000;
// Less than what a grammar may have: the common rules and repetitions come on top.
constexpr std::size_t kMostRules = 9000;
constexpr std::size_t kMostBytes = 1'000'000;
// Numbers have 16 digits before the point: bounds beyond say nothing.
constexpr double kBeyondNumbers = 1e16;

const std::set<std::string> kAnnotations = {"title", "description", "default",    "examples",     "$schema",
                                            "$id",   "$comment",    "deprecated", "readOnly",     "writeOnly",
                                            "$defs", "definitions", "strict",     "discriminator"};

// `text` as a GBNF literal.
std::string literal(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        quoted += c;
    }
  }
  return quoted + "\"";
}

std::string value_literal(const OrderedJson& value) {
  return literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

class Converter {
 public:
  explicit Converter(const OrderedJson& root) : root_(root) {}

  std::string convert() {
    std::string grammar = "root ::= " + expression_of(root_, "schema") + "\n";
    // Not from where they are referred to: references may follow each other thousands deep, and in circles.
    for (; !referred_.empty(); referred_.pop_front()) {
      const auto& [rule, schema, place] = referred_.front();
      rules_[rule].second = expression_of(*schema, place);
    }
    if (rules_.size() > kMostRules) refuse("schema", "it has more parts than a grammar may have rules: simplify it");
    for (const auto& [name, text] : rules_) {
      if (grammar.size() > kMostBytes) break;
      grammar += name + " ::= " + text + "\n";
    }
    if (grammar.size() > kMostBytes) refuse("schema", "it is too long as a grammar: shorten it");
    return grammar + kCommonRules;
  }

 private:
  [[noreturn]] static void refuse(const std::string& place, const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "the JSON schema cannot be used: " + what + " (at " + place + ")");
  }

  // Refuses keywords other than those.
  static void allow(const OrderedJson& schema, const std::string& place, const std::set<std::string>& keywords) {
    for (const auto& [key, value] : schema.items()) {
      if (!keywords.contains(key) && !kAnnotations.contains(key)) {
        refuse(place, "'" + key + "' is not supported here");
      }
    }
  }

  static std::int64_t count(const OrderedJson& schema, const std::string& place, const char* name,
                            std::int64_t fallback, std::int64_t most = kMostRepeats) {
    const auto found = schema.find(name);
    if (found == schema.end()) return fallback;
    if (!found->is_number_integer() || found->is_number_float() || *found < 0 || *found > most) {
      refuse(place, std::string("'") + name + "' must be a whole number from 0 to " + std::to_string(most));
    }
    return found->get<std::int64_t>();
  }

  std::string new_rule(const std::string& text) {
    n_bytes_ += text.size();
    if (n_bytes_ > kMostBytes) refuse("schema", "it is too long as a grammar: shorten it");
    const std::string name = "r" + std::to_string(rules_.size());
    rules_.emplace_back(name, text);
    return name;
  }

  // A GBNF expression that may stand anywhere in a sequence.
  std::string expression_of(const OrderedJson& schema, const std::string& place) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) refuse(place, "nothing matches 'false'");
      return "value";
    }
    if (!schema.is_object()) refuse(place, "a schema must be an object");
    if (schema.contains("$ref")) {
      allow(schema, place, {"$ref"});
      return reference(schema["$ref"], place);
    }
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (!schema.contains(name)) continue;
      allow(schema, place, {name});
      const OrderedJson& options = schema[name];
      if (!options.is_array() || options.empty())
        refuse(place, std::string("'") + name + "' must be a list of schemas");
      if (name == std::string("allOf") && options.size() > 1)
        refuse(place, "'allOf' of several schemas is not supported");
      return alternatives(options, place + "." + name);
    }
    if (schema.contains("enum")) {
      allow(schema, place, {"enum", "type"});
      if (!schema["enum"].is_array() || schema["enum"].empty()) refuse(place, "'enum' must be a list of values");
      std::string text;
      for (const OrderedJson& value : schema["enum"]) text += (text.empty() ? "" : " | ") + value_literal(value);
      return "(" + text + ")";
    }
    if (schema.contains("const")) {
      allow(schema, place, {"const", "type"});
      return value_literal(schema["const"]);
    }
    return typed(schema, place);
  }

  std::string alternatives(const OrderedJson& options, const std::string& place) {
    std::string text;
    for (std::size_t i = 0; i < options.size(); ++i) {
      text += (i == 0 ? "" : " | ") + expression_of(options[i], place + "[" + std::to_string(i) + "]");
    }
    return "(" + text + ")";
  }

  std::string reference(const OrderedJson& target, const std::string& place) {
    if (!target.is_string()) refuse(place, "'$ref' must be a string");
    const auto name = target.get<std::string>();
    if (const auto known = references_.find(name); known != references_.end()) return known->second;
    if (name != "#" && !name.starts_with("#/$defs/") && !name.starts_with("#/definitions/")) {
      refuse(place, "'$ref' may point to #, #/$defs/... and #/definitions/..., not to '" + name + "'");
    }
    const OrderedJson* schema = nullptr;
    try {
      schema = &root_.at(OrderedJson::json_pointer(name.substr(1)));
    } catch (const OrderedJson::exception&) {
      refuse(place, "there is no '" + name + "'");
    }
    const std::string rule = new_rule("");
    references_[name] = rule;
    referred_.push_back({rules_.size() - 1, schema, name});
    return rule;
  }

  std::string typed(const OrderedJson& schema, const std::string& place) {
    const auto type = schema.find("type");
    if (type == schema.end()) {
      if (schema.contains("properties")) return object(schema, place);
      if (schema.contains("items")) return array(schema, place);
      allow(schema, place, {});
      return "value";
    }
    if (type->is_string()) return of_type(type->get<std::string>(), schema, place);
    if (!type->is_array() || type->empty()) refuse(place, "'type' must be a string or a list of strings");
    std::set<std::string> names;  // each once: a list that repeats its types would double the work at every level
    std::string text;
    for (const OrderedJson& one : *type) {
      if (!one.is_string()) refuse(place, "'type' must be a string or a list of strings");
      if (!names.insert(one.get<std::string>()).second) continue;
      text += (text.empty() ? "" : " | ") + of_type(one.get<std::string>(), schema, place);
    }
    return "(" + text + ")";
  }

  std::string of_type(const std::string& name, const OrderedJson& schema, const std::string& place) {
    if (name == "object") return object(schema, place);
    if (name == "array") return array(schema, place);
    if (name == "string") return string(schema, place);
    if (name != "integer" && name != "number" && name != "boolean" && name != "null") {
      refuse(place, "there is no type '" + name + "'");
    }
    allow_type(schema, place, name);
    return name == "integer" || name == "number" ? number(schema, place, name) : name;
  }

  // What `make` makes; the place is added to what is wrong.
  template <class Make>
  std::string made(const std::string& place, const Make& make) {
    std::string text;
    try {
      text = make();
    } catch (const Error& error) {
      refuse(place, error.what());
    }
    // Alike texts are common, and long.
    const auto [known, is_new] = made_.try_emplace(text);
    if (is_new) known->second = new_rule(text);
    return known->second;
  }

  std::string number(const OrderedJson& schema, const std::string& place, const std::string& name) {
    NumberBounds bounds;
    bool is_bounded = false;
    const auto take = [&](const char* keyword, bool is_least, bool excludes) {
      const auto found = schema.find(keyword);
      if (found == schema.end()) return;
      if (!found->is_number()) refuse(place, std::string("'") + keyword + "' must be a number");
      std::optional<Decimal>& bound = is_least ? bounds.least : bounds.most;
      if (bound) refuse(place, std::string("'") + keyword + "' is one bound too many: give one of the two");
      is_bounded = true;
      const auto value = found->get<double>();
      if (is_least ? value <= -kBeyondNumbers : value >= kBeyondNumbers) return;
      bound = Decimal::parse(found->dump());
      (is_least ? bounds.excludes_least : bounds.excludes_most) = excludes;
    };
    return made(place, [&]() -> std::string {
      take("minimum", true, false);
      take("exclusiveMinimum", true, true);
      take("maximum", false, false);
      take("exclusiveMaximum", false, true);
      if (!is_bounded) return name;
      return name == "integer" ? integer_grammar(bounds) : number_grammar(bounds);
    });
  }

  // Which type a keyword says something about.
  static const std::map<std::string, std::string>& keywords() {
    static const std::map<std::string, std::string> owners = {{"properties", "object"},
                                                              {"required", "object"},
                                                              {"additionalProperties", "object"},
                                                              {"items", "array"},
                                                              {"minItems", "array"},
                                                              {"maxItems", "array"},
                                                              {"minLength", "string"},
                                                              {"maxLength", "string"},
                                                              {"pattern", "string"},
                                                              {"format", "string"},
                                                              {"minimum", "number"},
                                                              {"maximum", "number"},
                                                              {"exclusiveMinimum", "number"},
                                                              {"exclusiveMaximum", "number"}};
    return owners;
  }

  // Refuses keywords that say nothing about the type, unless it is one of several.
  static void allow_type(const OrderedJson& schema, const std::string& place, const std::string& name) {
    const auto type = schema.find("type");
    const bool is_one_of_many = type != schema.end() && type->is_array();
    std::set<std::string> allowed = {"type"};
    for (const auto& [keyword, owner] : keywords()) {
      if (is_one_of_many || owner == name || (owner == "number" && name == "integer")) allowed.insert(keyword);
    }
    allow(schema, place, allowed);
  }

  std::string string(const OrderedJson& schema, const std::string& place) {
    allow_type(schema, place, "string");
    // A format is not repeated characters: lengths are only compared with its own.
    const std::int64_t highest = schema.contains("format") ? std::int64_t{1} << 30 : kMostRepeats;
    const std::int64_t least = count(schema, place, "minLength", 0, highest);
    const std::int64_t most = count(schema, place, "maxLength", -1, highest);
    if (most >= 0 && most < least) refuse(place, "'maxLength' is below 'minLength'");
    if (schema.contains("pattern")) {
      if (!schema["pattern"].is_string()) refuse(place, "'pattern' must be a string");
      for (const char* other : {"format", "minLength", "maxLength"}) {
        if (schema.contains(other))
          refuse(place, std::string("'pattern' does not go with '") + other + "': put all into it");
      }
      return made(place, [&] { return pattern_grammar(schema["pattern"].get<std::string>()); });
    }
    if (schema.contains("format")) {
      if (!schema["format"].is_string()) refuse(place, "'format' must be a string");
      return made(place, [&] { return format_grammar(schema["format"].get<std::string>(), least, most); });
    }
    if (least == 0 && most < 0) return "string";
    return new_rule("\"\\\"\" char{" + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) +
                    "} \"\\\"\"");
  }

  std::string array(const OrderedJson& schema, const std::string& place) {
    allow_type(schema, place, "array");
    const std::int64_t least = count(schema, place, "minItems", 0);
    const std::int64_t most = count(schema, place, "maxItems", -1);
    if (most >= 0 && most < least) refuse(place, "'maxItems' is below 'minItems'");
    const std::string item = schema.contains("items") ? expression_of(schema["items"], place + ".items") : "value";
    if (most == 0) return "\"[]\"";
    std::string list = item + " (\",\" ws " + item + "){" + std::to_string(std::max<std::int64_t>(least - 1, 0)) + "," +
                       (most < 0 ? "" : std::to_string(most - 1)) + "}";
    if (least == 0) list = "(" + list + ")?";
    return new_rule("\"[\" ws " + list + " ws \"]\"");
  }

  std::string object(const OrderedJson& schema, const std::string& place) {
    allow_type(schema, place, "object");
    std::set<std::string> required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) refuse(place, "'required' must be a list of names");
      for (const OrderedJson& name : schema["required"]) {
        if (!name.is_string()) refuse(place, "'required' must be a list of names");
        required.insert(name.get<std::string>());
      }
    }
    static const OrderedJson kNone = OrderedJson::object();
    const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : kNone;
    if (!properties.is_object()) refuse(place, "'properties' must be an object");
    for (const std::string& name : required) {
      if (!properties.contains(name)) refuse(place, "'" + name + "' is required, and 'properties' does not have it");
    }
    if (properties.empty()) return map(schema, place);

    // Backwards: `rest` is what may follow where a property went before, `start` where none did.
    std::string rest, start;
    std::vector<std::pair<std::string, bool>> pairs;
    for (const auto& [name, property] : properties.items()) {
      const std::string pair =
          value_literal(name) + " \":\" ws " + expression_of(property, place + "." + std::string(name));
      pairs.emplace_back(new_rule(pair), required.contains(name));
    }
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      const auto& [rule, is_required] = *pair;
      const std::string first = rule + (rest.empty() ? "" : " " + rest);
      start = is_required ? first : "(" + first + " | " + (start.empty() ? "\"\"" : start) + ")";
      start = new_rule(start);
      std::string next = is_required ? "\",\" ws " + rule : "(\",\" ws " + rule + ")?";
      rest = new_rule(next + (rest.empty() ? "" : " " + rest));
    }
    return new_rule("\"{\" ws " + start + " ws \"}\"");
  }

  // An object whose names are free.
  std::string map(const OrderedJson& schema, const std::string& place) {
    const auto more = schema.find("additionalProperties");
    if (more == schema.end() || *more == true) return "object";
    if (*more == false) return "\"{}\"";
    const std::string pair = new_rule("string \":\" ws " + expression_of(*more, place + ".additionalProperties"));
    return new_rule("\"{\" ws (" + pair + " (\",\" ws " + pair + ")*)? ws \"}\"");
  }

  const OrderedJson& root_;
  std::vector<std::pair<std::string, std::string>> rules_;  // name and text
  std::map<std::string, std::string> references_;           // "#/$defs/..." to the rule's name
  std::map<std::string, std::string> made_;                 // an expression to the rule's name
  std::size_t n_bytes_ = 0;                                 // of all rules
  struct Referred {
    std::size_t rule;
    const OrderedJson* schema;
    std::string place;
  };
  std::deque<Referred> referred_;  // what their rules say is still to be found out
};

[[noreturn]] void refuse_text(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "the JSON schema cannot be used: " + what);
}

}  // namespace

std::string schema_grammar(const OrderedJson& schema) { return Converter(schema).convert(); }

std::string json_schema_grammar(std::string_view schema) {
  if (schema.size() > kMostSchemaBytes) refuse_text("it has more than 1 MiB");
  int n_names = 0, n_values = 0;
  bool is_too_deep = false;
  const auto is_small = [&](int depth, OrderedJson::parse_event_t event, OrderedJson&) {
    n_names += event == OrderedJson::parse_event_t::key ? 1 : 0;
    n_values += event == OrderedJson::parse_event_t::value ? 1 : 0;
    is_too_deep = is_too_deep || depth > kMostLevels;
    return !is_too_deep && n_names <= kMostNames && n_values <= kMostValues;
  };
  const OrderedJson parsed = OrderedJson::parse(schema, is_small, /*allow_exceptions=*/false);
  if (is_too_deep) refuse_text("it is nested deeper than " + std::to_string(kMostLevels) + " levels");
  if (n_names > kMostNames) refuse_text("it has more than " + std::to_string(kMostNames) + " names");
  if (n_values > kMostValues) refuse_text("it has more than " + std::to_string(kMostValues) + " values");
  if (parsed.is_discarded()) refuse_text("it is no JSON");
  return schema_grammar(parsed);
}

std::string json_object_grammar() { return std::string("root ::= object\n") + kCommonRules; }

}  // namespace winnow
