#include "text/call_tree.h"

#include <chat-peg-parser.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace winnow {
namespace {

using Builder = common_chat_peg_builder;

// Returns the pattern (ECMAScript) of nothing but a text.
std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char letter : text) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(letter) != std::string_view::npos) pattern += '\\';
    pattern += letter;
  }
  return pattern;
}

}  // namespace

std::set<CallTree::Id> CallTree::outermost(
    const std::function<bool(const common_peg_rule_parser& rule, Id id)>& holds) const {
  std::set<Id> inner, all;
  std::set<std::pair<Id, bool>> seen;
  const auto visit = [&](auto&& self, Id id, bool is_inside, int depth) -> void {
    if (depth > kMostNested || !seen.insert({id, is_inside}).second) return;
    const auto* rule = std::get_if<common_peg_rule_parser>(&arena_.get(id));
    const bool is_one = rule != nullptr && holds(*rule, id);
    if (is_one) (is_inside ? inner : all).insert(id);
    for (const Id child : children_of(id)) self(self, child, is_inside || is_one, depth + 1);
  };
  visit(visit, arena_.root(), false, 0);
  if (all.size() > 1) std::erase_if(all, [&](Id id) { return inner.contains(id); });
  return all;
}

std::optional<std::string> CallTree::name_below(Id id, const char* tag, const char* until) const {
  std::set<std::string> names;
  find_names(id, tag, until, false, 0, names);
  if (names.size() != 1) return std::nullopt;
  return *names.begin();
}

std::vector<std::string> CallTree::delimiters(Id id) const {
  std::vector<std::string> found;
  find_delimiters(id, 0, found);
  return found;
}

std::optional<std::vector<CallTree::Id>> CallTree::arguments(Id id) const {
  std::vector<Id> found;
  if (!find_arguments(id, 0, found)) return std::nullopt;
  return found;
}

std::optional<CallTree::Begin> CallTree::begin(Id id) const {
  Begin begin;
  if (!find_begin(id, false, 0, begin) || begin.name.empty()) return std::nullopt;
  return begin;
}

bool CallTree::find_begin(Id id, bool is_name, int depth, Begin& begin) const {
  if (!begin.name.empty() && !is_name) return true;
  if (depth > kMostNested) return false;
  const auto& node = arena_.get(id);
  if (const auto* literal = std::get_if<common_peg_literal_parser>(&node)) {
    (is_name ? begin.name : begin.before) += literal_pattern(literal->literal);
    return true;
  }
  if (std::holds_alternative<common_peg_space_parser>(node)) {
    begin.before += "\\s*";
    return true;
  }
  if (std::holds_alternative<common_peg_choice_parser>(node) || std::holds_alternative<common_peg_until_parser>(node) ||
      std::holds_alternative<common_peg_chars_parser>(node)) {
    return false;
  }
  const auto* repeated = std::get_if<common_peg_repetition_parser>(&node);
  if (repeated != nullptr && repeated->min_count == 0) {
    Begin part;
    const bool is_certain = find_begin(repeated->child, false, depth + 1, part) && part.name.empty();
    if (is_certain && !part.before.empty()) {
      begin.before += "(?:" + part.before + (repeated->max_count == 1 ? ")?" : ")*");
    }
    return true;
  }
  if (const auto* tag = std::get_if<common_peg_tag_parser>(&node)) is_name = tag->tag == Builder::TOOL_NAME;
  for (const Id child : children_of(id)) {
    if (!find_begin(child, is_name, depth + 1, begin)) return false;
  }
  return true;
}

std::vector<CallTree::Id> CallTree::children_of(Id id) const {
  return std::visit(
      [&](const auto& one) -> std::vector<Id> {
        using T = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<T, common_peg_sequence_parser> || std::is_same_v<T, common_peg_choice_parser>) {
          return one.children;
        } else if constexpr (std::is_same_v<T, common_peg_ref_parser>) {
          return {arena_.get_rule(one.name)};
        } else if constexpr (std::is_same_v<T, common_peg_repetition_parser> ||
                             std::is_same_v<T, common_peg_schema_parser> || std::is_same_v<T, common_peg_rule_parser> ||
                             std::is_same_v<T, common_peg_atomic_parser> || std::is_same_v<T, common_peg_tag_parser> ||
                             std::is_same_v<T, common_peg_gbnf_parser> || std::is_same_v<T, common_peg_ac_parser>) {
          return {one.child};
        } else {
          return {};
        }
      },
      arena_.get(id));
}

void CallTree::find_names(Id id, const char* tag, const char* until, bool is_below, int depth,
                          std::set<std::string>& names) const {
  if (depth > kMostNested || names.size() > 1) return;
  const auto& node = arena_.get(id);
  if (const auto* one = std::get_if<common_peg_tag_parser>(&node)) {
    if (one->tag == until && depth > 0) return;
    is_below = is_below || one->tag == tag;
  }
  if (const auto* one = std::get_if<common_peg_literal_parser>(&node)) {
    if (is_below) names.insert(one->literal);
    return;
  }
  if (depth > 0 && std::holds_alternative<common_peg_rule_parser>(node)) return;
  for (const Id child : children_of(id)) find_names(child, tag, until, is_below, depth + 1, names);
}

bool CallTree::has_tag(Id id, const char* tag, int depth) const {
  if (depth > kMostNested) return false;
  const auto* one = std::get_if<common_peg_tag_parser>(&arena_.get(id));
  if (one != nullptr && one->tag == tag) return true;
  if (depth > 0 && std::holds_alternative<common_peg_rule_parser>(arena_.get(id))) return false;
  const std::vector<Id> children = children_of(id);
  return std::any_of(children.begin(), children.end(), [&](Id child) { return has_tag(child, tag, depth + 1); });
}

bool CallTree::has_schema(Id id, int depth) const {
  if (depth > kMostNested) return false;
  if (std::holds_alternative<common_peg_schema_parser>(arena_.get(id))) return true;
  if (std::holds_alternative<common_peg_rule_parser>(arena_.get(id))) return false;
  const std::vector<Id> children = children_of(id);
  return std::any_of(children.begin(), children.end(), [&](Id child) { return has_schema(child, depth + 1); });
}

void CallTree::find_delimiters(Id id, int depth, std::vector<std::string>& found) const {
  if (depth > kMostNested) return;
  if (const auto* one = std::get_if<common_peg_until_parser>(&arena_.get(id))) {
    found.insert(found.end(), one->delimiters.begin(), one->delimiters.end());
  }
  for (const Id child : children_of(id)) find_delimiters(child, depth + 1, found);
}

bool CallTree::find_arguments(Id id, int depth, std::vector<Id>& found) const {
  if (depth > kMostNested) return false;
  const auto& node = arena_.get(id);
  if (const auto* choice = std::get_if<common_peg_choice_parser>(&node)) {
    return !choice->children.empty() && std::all_of(choice->children.begin(), choice->children.end(),
                                                    [&](Id child) { return find_arguments(child, depth + 1, found); });
  }
  const auto* rule = std::get_if<common_peg_rule_parser>(&node);
  const Id inner = rule != nullptr ? rule->child : id;
  if (!name_below(inner, Builder::TOOL_ARG_NAME, "") || !has_tag(inner, Builder::TOOL_ARG)) {
    return rule != nullptr && find_arguments(rule->child, depth + 1, found);
  }
  found.push_back(id);
  return true;
}

}  // namespace winnow
