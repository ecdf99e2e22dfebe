// Walks the parser that libllama-common has made of a template. Besides call_tree.h, chat_template.cc and
// template_limits.cc, this is the only file that includes libllama-common's headers.
#include "text/call_grammar.h"

#include <chat-peg-parser.h>
#include <peg-parser.h>
#include <trie.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "schema/character_set.h"
#include "schema/grammar_rules.h"
#include "schema/pattern.h"
#include "schema/schema_grammar.h"
#include "text/call_tree.h"
#include "text/tool_schemas.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Builder = common_chat_peg_builder;
using Id = common_peg_parser_id;

// The space that parsers accept, but bounded. Two newlines occur after thinking.
constexpr const char* kSpace = "c-space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n";
// The id of a call that the model writes. It is bounded, since a small model might never end it.
constexpr const char* kCallId = "[A-Za-z0-9_-]{1,40}";

// A place in the parser's tree.
struct Place {
  const ChatTool* tool = nullptr;
  const OrderedJson* schema = nullptr;  // of the argument, or the tool's parameters outside of an argument
  bool is_argument = false;
  bool is_value = false;            // within the value of the argument
  bool is_id = false;               // within the id of the call
  std::string name = "parameters";  // for messages

  auto key() const { return std::make_tuple(tool, schema, is_argument, is_value, is_id); }
};

// An expression of the grammar. `text` is nullopt if nothing can match.
struct Part {
  std::optional<std::string> text;
  bool has_call = false;    // it contains the name or arguments of a tool
  bool has_speech = false;  // content or unwanted thinking was left out of it
  bool is_alternatives = false;
  bool looks_ahead = false;  // the next part has to follow without space
};

class Writer {
 public:
  Writer(const common_peg_arena& arena, const std::vector<ChatTool>& tools, const CallForm& form)
      : arena_(arena),
        tree_(arena),
        tools_(tools),
        form_(form),
        notation_(arena.has_rule("gemma4-dict") ? ValueNotation::kGemma : ValueNotation::kJson),
        schemas_(SchemaRules::Use::kAdvice, notation_),
        rules_("c-") {
    for (const ChatTool& tool : tools) parameters_.emplace(tool.name, parsed_parameters(tool));
  }

  CallGrammar run() {
    const std::string root = form_.is_forced ? enclosed(part_of(arena_.root(), {}, 0)) : triggered();
    if (root.empty()) return {"", {}, schemas_.warnings()};
    std::string text = "root ::= " + root + "\n" + kSpace + rules_.text() + schemas_.rules();
    return {std::move(text), begin_patterns(), schemas_.warnings()};
  }

 private:
  // Returns the alternatives with which a call begins: the outermost rules among those that the template marks, or if
  // it marks none, among those of the tools.
  std::string triggered() {
    const auto is_marked = [](const common_peg_rule_parser& rule, Id) { return rule.trigger; };
    const auto is_of_tool = [&](const common_peg_rule_parser&, Id id) {
      Place place;
      enter_tool(id, place);
      return place.tool != nullptr;
    };
    std::set<Id> all = tree_.outermost(is_marked);
    if (all.empty()) all = tree_.outermost(is_of_tool);
    std::string text;
    for (const Id id : all) {
      const Part part = part_of(id, {}, 0);
      if (part.text && !part.text->empty()) text += (text.empty() ? "" : " | ") + enclosed(part);
    }
    return text;
  }

  // Returns patterns for what is in begins_. A call that begins with nothing but the tool's name has to be the first of
  // the answer.
  std::vector<std::string> begin_patterns() const {
    constexpr std::size_t kMostBytes = 1 << 14;  // std::regex takes patterns of no more than 100,000 states
    std::vector<std::string> patterns;
    for (const auto& [before, names] : begins_) {
      std::string any;
      for (auto name = names.begin(); name != names.end();) {
        any += (any.empty() ? "" : "|") + *name++;
        if (name != names.end() && any.size() < kMostBytes) continue;
        patterns.push_back((before.empty() ? "^" : before) + "(?:" + std::exchange(any, "") + ")");
      }
    }
    return patterns;
  }

  static std::string enclosed(const Part& part) {
    if (!part.text) return "";
    return part.is_alternatives ? "(" + *part.text + ")" : *part.text;
  }

  Part part_of(Id id, const Place& place, int depth) {
    if (depth > CallTree::kMostNested) {
      throw Error(ErrorCode::kUnsupported, "the chat template's form of calls is nested too deeply");
    }
    return std::visit([&](const auto& one) { return part(one, id, place, depth + 1); }, arena_.get(id));
  }

  Part part(const common_peg_epsilon_parser&, Id, const Place&, int) { return {""}; }
  Part part(const common_peg_start_parser&, Id, const Place&, int) { return {""}; }
  Part part(const common_peg_end_parser&, Id, const Place&, int) { return {""}; }
  Part part(const common_peg_and_parser& one, Id, const Place&, int) {
    return {.text = "", .looks_ahead = std::holds_alternative<common_peg_literal_parser>(arena_.get(one.child))};
  }
  Part part(const common_peg_not_parser&, Id, const Place&, int) { return {""}; }
  Part part(const common_peg_any_parser&, Id, const Place&, int) { return {"."}; }
  Part part(const common_peg_space_parser&, Id, const Place&, int) { return {"c-space"}; }
  Part part(const common_peg_literal_parser& one, Id, const Place&, int) {
    // Thinking that is not wanted must not begin.
    if (!thinks() && !form_.thinking_begin.empty() && one.literal.find(form_.thinking_begin) != std::string::npos) {
      return {std::nullopt, false, true};
    }
    return {one.literal.empty() ? "" : grammar_literal(one.literal)};
  }

  Part part(const common_peg_sequence_parser& one, Id, const Place& place, int depth) {
    if (const auto listed = argument_list(one, place, depth)) return *listed;
    Part all{""};
    for (const Id child : one.children) {
      if (all.looks_ahead && std::holds_alternative<common_peg_space_parser>(arena_.get(child))) continue;
      const Part next = part_of(child, place, depth);
      all.has_call |= next.has_call;
      all.has_speech |= next.has_speech;
      all.looks_ahead = next.looks_ahead;
      if (!next.text) all.text.reset();
      if (!all.text || next.text->empty()) continue;
      *all.text += (all.text->empty() ? "" : " ") + enclosed(next);
    }
    return all;
  }

  Part part(const common_peg_choice_parser& one, Id, const Place& place, int depth) {
    std::vector<Part> parts;
    for (const Id child : one.children) {
      Part next = part_of(child, place, depth);
      if (next.text) parts.push_back(std::move(next));
    }
    // Alternatives from which something was left out are dropped if there are others; so are those without a call if
    // one with a call remains.
    const auto is_direct = [](const Part& part) { return part.has_call && !part.has_speech; };
    const auto is_silent = [](const Part& part) { return !part.has_speech; };
    const auto keep_only = [&](const auto& condition) {
      if (std::any_of(parts.begin(), parts.end(), condition)) std::erase_if(parts, std::not_fn(condition));
    };
    if (std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.has_call; })) {
      keep_only(is_direct);
    } else {
      keep_only(is_silent);
    }
    Part all;
    for (const Part& next : parts) {
      all.has_call |= next.has_call;
      all.has_speech |= next.has_speech;
      all.looks_ahead |= next.looks_ahead;
      const std::string text = next.text->empty() ? "\"\"" : *next.text;
      all.text = all.text ? *all.text + " | " + text : text;
    }
    all.is_alternatives = parts.size() > 1 || (parts.size() == 1 && parts[0].is_alternatives);
    return all;
  }

  Part part(const common_peg_repetition_parser& one, Id, const Place& place, int depth) {
    if (const auto arguments = optional_arguments(one, place, depth)) return *arguments;
    const Part child = part_of(one.child, place, depth);
    int least = one.min_count, most = one.max_count;
    // A repetition of nothing but left-out speech is left out with its frame.
    const bool is_speech = child.has_speech && !child.has_call;
    if (!child.text || child.text->empty() || (is_speech && least == 0)) {
      return {least == 0 || child.text ? std::optional<std::string>("") : std::nullopt, child.has_call,
              child.has_speech};
    }
    if (child.has_call && !form_.is_parallel) most = 1;
    return {"(" + *child.text + ")" + bounds(least, most), child.has_call, child.has_speech};
  }

  static std::string bounds(int least, int most) {
    if (least == 1 && most == 1) return "";
    return "{" + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) + "}";
  }

  Part part(const common_peg_chars_parser& one, Id, const Place&, int) {
    // The number of a call is bounded, since a small model might never end it.
    constexpr int kMostDigits = 6;
    const int most = one.pattern == "[0-9]" && one.max_count < 0 ? kMostDigits : one.max_count;
    return {one.pattern + bounds(one.min_count, most)};
  }

  Part part(const common_peg_string_parser& one, Id, const Place& place, int) {
    if (place.is_id) return {kCallId};
    const std::string delimiter(1, one.delimiter);
    return {rules_.add("([^" + delimiter + "\\\\\\x00-\\x1F] | \"\\\\\" ([\"'\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))*")};
  }

  Part part(const common_peg_until_parser& one, Id, const Place& place, int) {
    if (one.delimiters.empty()) return {".*"};
    if (place.is_id) return {kCallId};
    if (place.tool != nullptr && !place.is_value) {
      // The parser skips this text within a call; it is a short attribute.
      CharacterSet others{{0, 0x1F}};
      for (const std::string& end : one.delimiters) others.add(Pattern::literal(end.substr(0, 1)).children.front().set);
      return {others.complement().intersection(CharacterSet::all()).grammar(TextForm::kPlain) + "{0,30}"};
    }
    return {before(one.delimiters, false)};
  }

  Part part(const common_peg_ac_parser& one, Id, const Place& place, int depth) {
    if (place.is_argument && tree_.has_tag(one.child, Builder::TOOL_ARG_STRING_VALUE) && one.delimiters.size() == 1) {
      if (const auto text = argument_text(place, one.delimiters[0])) {
        return {*text + " " + grammar_literal(one.delimiters[0]), true};
      }
    }
    if (!thinks() && tree_.has_tag(one.child, Builder::REASONING)) return part_of(one.child, place, depth);
    return {before(one.delimiters, true), place.is_argument};
  }

  Part part(const common_peg_schema_parser&, Id, const Place& place, int) { return {value(place), true}; }

  Part part(const common_peg_rule_parser& one, Id id, const Place& outer, int depth) {
    Place place = outer;
    if (place.tool == nullptr) enter_tool(id, place);
    if (place.tool != outer.tool) {
      if (const auto begin = tree_.begin(one.child)) begins_[begin->before].insert(begin->name);
    }
    const auto key = std::make_pair(id, place.key());
    if (const auto known = named_.find(key); known != named_.end()) return known->second;
    const std::string name = rules_.reserve();
    // The rule may refer to itself, so its name is known before its content.
    named_[key] = {name};
    Part inner = part_of(one.child, place, depth);
    if (inner.text && inner.text->empty()) {
      inner.is_alternatives = false;
      rules_.define(name, "\"\"");
      return named_[key] = inner;
    }
    rules_.define(name, inner.text.value_or("\"\""));
    Part made = inner;
    made.is_alternatives = false;
    if (made.text) made.text = name;
    return named_[key] = made;
  }

  Part part(const common_peg_ref_parser& one, Id, const Place& place, int depth) {
    return part_of(arena_.get_rule(one.name), place, depth);
  }

  Part part(const common_peg_atomic_parser& one, Id, const Place& place, int depth) {
    return part_of(one.child, place, depth);
  }

  Part part(const common_peg_gbnf_parser& one, Id, const Place& place, int depth) {
    if (one.grammar.empty()) return {""};
    if (arena_.has_rule(one.grammar)) return part_of(arena_.get_rule(one.grammar), place, depth);
    return {one.grammar, false, false, true};
  }

  Part part(const common_peg_tag_parser& one, Id id, const Place& outer, int depth) {
    Place place = outer;
    // Content and unwanted thinking are left out.
    if (one.tag == Builder::CONTENT) return {"", false, true};
    if (one.tag == Builder::REASONING && !thinks()) return {"", false, true};
    if (place.tool == nullptr && (one.tag == Builder::TOOL || one.tag == Builder::TOOL_OPEN)) enter_tool(id, place);
    if (one.tag == Builder::TOOL_ARG && place.tool != nullptr) {
      enter_argument(id, place);
      place.is_value = false;
    } else if (one.tag == common_chat_peg_minimax_m3_mapper::TOOL_ARG_ITEM && place.schema != nullptr) {
      place.schema = items_of(place);
    } else if (place.is_argument && one.tag == Builder::TOOL_ARG_STRING_VALUE) {
      const std::vector<std::string> delimiters = tree_.delimiters(one.child);
      if (delimiters.size() == 1) {
        if (const auto text = argument_text(place, delimiters[0])) return {*text, true};
      }
    } else if (place.is_argument && one.tag == Builder::TOOL_ARG_VALUE && !tree_.has_schema(one.child)) {
      return {value(place), true};
    }
    if (one.tag == Builder::TOOL_ARGS && place.tool != nullptr && notation_ == ValueNotation::kGemma) {
      return {value(place), true};
    }
    place.is_id = place.is_id || one.tag == Builder::TOOL_ID;
    place.is_value = place.is_value || one.tag == Builder::TOOL_ARG_VALUE ||
                     one.tag == Builder::TOOL_ARG_STRING_VALUE || one.tag == Builder::TOOL_ARGS;
    Part inner = part_of(one.child, place, depth);
    // A tool without parameters may have a name alone.
    inner.has_call |= one.tag == Builder::TOOL_NAME || one.tag == Builder::TOOL_ARGS || one.tag == Builder::TOOL_ARG;
    return inner;
  }

  // --- Arguments --------------------------------------------------------------------------------------------------

  bool thinks() const { return form_.may_think || !form_.is_forced; }

  void enter_tool(Id id, Place& place) {
    const auto name = tree_.name_below(id, Builder::TOOL_NAME, "");
    if (!name) return;
    for (const ChatTool& tool : tools_) {
      if (tool.name != *name) continue;
      place.tool = &tool;
      place.schema = &parameters_.at(tool.name);
      schemas_.begin(subject_of(tool), parameters_.at(tool.name));
    }
  }

  void enter_argument(Id id, Place& place) {
    const auto name = tree_.name_below(id, Builder::TOOL_ARG_NAME, Builder::TOOL_ARG);
    if (!name || place.schema == nullptr) return;
    for (const SchemaRules::Member& member : members_of(place)) {
      if (member.name != *name) continue;
      place.schema = &member.schema;
      place.is_argument = true;
      place.name += "." + *name;
      return;
    }
  }

  const std::vector<SchemaRules::Member>& members_of(const Place& place) {
    const auto [known, is_new] = members_.try_emplace(place.schema);
    if (is_new) {
      use(place);
      known->second = schemas_.members(*place.schema, place.name);
    }
    return known->second;
  }

  const OrderedJson* items_of(const Place& place) {
    const auto [known, is_new] = items_.try_emplace(place.schema);
    if (is_new) {
      use(place);
      known->second = schemas_.items(*place.schema, place.name);
    }
    return &known->second;
  }

  // Makes the schemas resolve references within the tool's own parameters.
  void use(const Place& place) { schemas_.begin(subject_of(*place.tool), parameters_.at(place.tool->name)); }

  std::string value(const Place& place) {
    if (place.tool == nullptr) return "w-object";
    const auto key = std::make_pair(place.tool, place.schema);
    if (const auto known = values_.find(key); known != values_.end()) return known->second;
    use(place);
    std::string text;
    if (place.is_argument) {
      text = schemas_.value(*place.schema, place.name);
    } else {
      const OrderedJson object = {{"allOf", {*place.schema, {{"type", "object"}}}}};
      text = schemas_.value(object, place.name);
    }
    return values_[key] = std::move(text);
  }

  std::optional<std::string> argument_text(const Place& place, const std::string& end) {
    use(place);
    return schemas_.text(*place.schema, place.name, end);
  }

  bool is_required(Id argument, const Place& place) {
    const auto* rule = std::get_if<common_peg_rule_parser>(&arena_.get(argument));
    const auto name = tree_.name_below(rule != nullptr ? rule->child : argument, Builder::TOOL_ARG_NAME, "");
    for (const SchemaRules::Member& member : members_of(place)) {
      if (name && member.name == *name) return member.is_required;
    }
    return false;
  }

  // Turns a repetition of arguments in any order and number into each argument once, in order, with the required ones
  // mandatory. Returns nullopt for any other repetition.
  std::optional<Part> optional_arguments(const common_peg_repetition_parser& one, const Place& place, int depth) {
    if (place.tool == nullptr || one.max_count != -1 || one.min_count != 0) return std::nullopt;
    std::vector<Id> frame{one.child};
    if (const auto* sequence = std::get_if<common_peg_sequence_parser>(&arena_.get(one.child))) {
      frame = sequence->children;
    }
    std::vector<Id> arguments;
    std::string before, behind;
    for (const Id child : frame) {
      if (arguments.empty()) {
        if (auto found = tree_.arguments(child)) {
          arguments = std::move(*found);
          continue;
        }
      }
      const Part part = part_of(child, place, depth);
      if (!part.text || part.has_call) return std::nullopt;
      (arguments.empty() ? before : behind) += *part.text + " ";
    }
    if (arguments.empty()) return std::nullopt;
    std::string text;
    for (const Id argument : arguments) {
      const Part part = part_of(argument, place, depth);
      if (!part.text) continue;
      text += (text.empty() ? "(" : " (") + before + enclosed(part) + " " + behind + ")" +
              (is_required(argument, place) ? "" : "?");
    }
    return Part{text, true};
  }

  // Does the same for a list such as name(first=1, second=2): one argument, and more after commas.
  std::optional<Part> argument_list(const common_peg_sequence_parser& one, const Place& place, int depth) {
    if (place.tool == nullptr || one.children.size() != 2) return std::nullopt;
    const auto* rest = std::get_if<common_peg_repetition_parser>(&arena_.get(one.children[1]));
    if (rest == nullptr || rest->max_count != -1) return std::nullopt;
    const auto arguments = tree_.arguments(one.children[0]);
    if (!arguments) return std::nullopt;
    const auto* more = std::get_if<common_peg_sequence_parser>(&arena_.get(rest->child));
    if (more == nullptr || more->children.size() < 2 || tree_.arguments(more->children.back()) != arguments) {
      return std::nullopt;
    }
    std::string comma;
    for (std::size_t i = 0; i + 1 < more->children.size(); ++i) {
      comma += enclosed(part_of(more->children[i], place, depth)) + " ";
    }
    // The list is built from its end: `behind` is what may follow an argument, and `start` is the list if no argument
    // came before. It has at least one argument.
    std::string behind;
    std::optional<std::string> start;
    for (auto argument = arguments->rbegin(); argument != arguments->rend(); ++argument) {
      const Part part = part_of(*argument, place, depth);
      if (!part.text) continue;
      const std::string text = rules_.add(*part.text);
      const bool is_needed = is_required(*argument, place);
      const std::string first = text + " " + behind;
      start = is_needed || !start ? first : "(" + first + " | " + *start + ")";
      start = rules_.add(*start);
      behind = rules_.add(is_needed ? comma + text + " " + behind : "(" + comma + text + ")? " + behind);
    }
    if (!start) return std::nullopt;
    return Part{*start, true};
  }

  // Returns a rule for any text before the first of `ends`, with or without that end, by Aho and Corasick's automaton.
  std::string before(const std::vector<std::string>& ends, bool with_end) {
    const auto [known, is_new] = texts_.try_emplace({ends, with_end});
    if (!is_new) return known->second;
    const common_aho_corasick automaton(ends);
    std::vector<std::string> names(automaton.num_states());
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!automaton.is_terminal(i)) names[i] = rules_.reserve();
    }
    if (names[0].empty()) return known->second = "\"\"";
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      std::map<std::size_t, std::vector<CharacterSet::Range>> moves;
      std::vector<CharacterSet::Range> special{{0, 0}};
      for (const std::uint32_t character : automaton.alphabet) {
        const std::size_t next = automaton.next(i, character);
        if (next == 0) continue;
        special.push_back({character, character});
        if (!automaton.is_terminal(next) || with_end) moves[next].push_back({character, character});
      }
      std::string text = with_end ? "" : "\"\"";
      const auto add = [&](const CharacterSet& set, const std::string& next) {
        text += (text.empty() ? "" : " | ") + set.grammar(TextForm::kPlain) + (next.empty() ? "" : " " + next);
      };
      for (auto& [next, ranges] : moves) add(CharacterSet(std::move(ranges)), names[next]);
      add(CharacterSet(std::move(special)).complement().intersection(CharacterSet::all()), names[0]);
      rules_.define(names[i], text);
    }
    return known->second = names[0];
  }

  const common_peg_arena& arena_;
  const CallTree tree_;
  const std::vector<ChatTool>& tools_;
  const CallForm& form_;
  ValueNotation notation_;
  SchemaRules schemas_;
  GrammarRules rules_;
  std::map<std::string, OrderedJson> parameters_;  // by the tool's name
  // By the schema that they belong to.
  std::map<const OrderedJson*, std::vector<SchemaRules::Member>> members_;
  std::map<const OrderedJson*, OrderedJson> items_;
  std::map<std::pair<Id, std::tuple<const ChatTool*, const OrderedJson*, bool, bool, bool>>, Part> named_;
  std::map<std::pair<const ChatTool*, const OrderedJson*>, std::string> values_;
  std::map<std::pair<std::vector<std::string>, bool>, std::string> texts_;
  std::map<std::string, std::set<std::string>> begins_;  // the tools' names by what precedes them
};

}  // namespace

CallGrammar call_grammar(const std::string& parser, const std::vector<ChatTool>& tools, const CallForm& form) {
  common_peg_arena arena;
  arena.load(parser);
  return Writer(arena, tools, form).run();
}

}  // namespace winnow
