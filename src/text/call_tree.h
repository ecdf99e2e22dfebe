// Searches in the parser of calls that libllama-common makes of a chat template. It is a tree of expressions, in which
// tags mark the parts of a call (its tool's name, its arguments and their names), and rules are parts with a name.
#pragma once

#include <peg-parser.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace winnow {

class CallTree {
 public:
  using Id = common_peg_parser_id;

  // No search goes deeper: rules may refer to themselves.
  static constexpr int kMostNested = 300;

  explicit CallTree(const common_peg_arena& arena) : arena_(arena) {}

  // Returns the rules for which a condition holds and which are not inside another such rule.
  std::set<Id> outermost(const std::function<bool(const common_peg_rule_parser& rule, Id id)>& holds) const;

  // Returns the only literal below the nodes of a tag, or nullopt if there is none or more than one. The search enters
  // neither other rules nor nodes of the tag `until`.
  std::optional<std::string> name_below(Id id, const char* tag, const char* until) const;

  // Returns whether a node of the tag, or one that holds a value of a schema, is at or below this node and not in
  // another rule.
  bool has_tag(Id id, const char* tag) const { return has_tag(id, tag, 0); }
  bool has_schema(Id id) const { return has_schema(id, 0); }

  // Returns what ends the texts below a node.
  std::vector<std::string> delimiters(Id id) const;

  // Returns the arguments below a node, each of which is an alternative of its own, or nullopt if the node has anything
  // else.
  std::optional<std::vector<Id>> arguments(Id id) const;

  // A tool's calls begin with these, patterns of ECMAScript.
  struct Begin {
    std::string before;  // what precedes the tool's name
    std::string name;
  };
  // Returns it for the node of a tool's calls, or nullopt if it is not certain.
  std::optional<Begin> begin(Id id) const;

 private:
  std::vector<Id> children_of(Id id) const;
  void find_names(Id id, const char* tag, const char* until, bool is_below, int depth,
                  std::set<std::string>& names) const;
  // Appends what precedes the tool's name at or below a node, and the name. Returns false if that is not certain.
  bool find_begin(Id id, bool is_name, int depth, Begin& begin) const;
  bool has_tag(Id id, const char* tag, int depth) const;
  bool has_schema(Id id, int depth) const;
  void find_delimiters(Id id, int depth, std::vector<std::string>& found) const;
  bool find_arguments(Id id, int depth, std::vector<Id>& found) const;

  const common_peg_arena& arena_;
};

}  // namespace winnow
