#include "text/left_recursion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow {
namespace {

using Kind = Grammar::Kind;

// Returns the rule that a symbol stands for or repeats.
std::uint32_t rule_of(const Grammar& grammar, const Grammar::Symbol& symbol) {
  return symbol.kind == Kind::kRepeat ? grammar.repeats[symbol.value].rule : symbol.value;
}

bool is_rule(const Grammar::Symbol& symbol) { return symbol.kind == Kind::kRule || symbol.kind == Kind::kRepeat; }

// Returns whether a symbol is a repetition that may be left out, whatever it repeats.
bool is_optional(const Grammar& grammar, const Grammar::Symbol& symbol) {
  return symbol.kind == Kind::kRepeat && grammar.repeats[symbol.value].least == 0;
}

}  // namespace

std::vector<bool> find_empty_rules(const Grammar& grammar) {
  struct Sequence {
    std::uint32_t rule;
    std::size_t n_open = 0;  // rules in it that are not known to be empty
  };
  std::vector<Sequence> sequences;
  std::vector<std::vector<std::size_t>> users(grammar.rules.size());  // [n_rules] sequences of rules alone that use it
  std::vector<bool> is_empty(grammar.rules.size());
  std::vector<std::uint32_t> found;
  const auto set_empty = [&](std::uint32_t rule) {
    if (!is_empty[rule]) found.push_back(rule);
    is_empty[rule] = true;
  };
  for (std::uint32_t rule = 0; rule < grammar.rules.size(); ++rule) {
    for (const std::uint32_t begin : grammar.rules[rule]) {
      std::uint32_t end = begin;
      while (is_rule(grammar.symbols[end])) ++end;
      if (grammar.symbols[end].kind != Kind::kEnd) continue;
      std::size_t n_open = 0;
      for (std::uint32_t i = begin; i < end; ++i) {
        if (is_optional(grammar, grammar.symbols[i])) continue;
        users[rule_of(grammar, grammar.symbols[i])].push_back(sequences.size());
        ++n_open;
      }
      sequences.push_back({rule, n_open});
      if (n_open == 0) set_empty(rule);
    }
  }
  while (!found.empty()) {
    const std::uint32_t rule = found.back();
    found.pop_back();
    for (const std::size_t user : users[rule]) {
      if (--sequences[user].n_open == 0) set_empty(sequences[user].rule);
    }
  }
  return is_empty;
}

namespace {

struct Edge {
  std::uint32_t to;  // a rule that can stand first
  bool is_last;      // nothing follows it
};

// Returns for each rule the rules that can stand first in it: [n_rules].
std::vector<std::vector<Edge>> find_edges(const Grammar& grammar) {
  const std::vector<bool> is_empty = find_empty_rules(grammar);
  std::vector<std::vector<Edge>> edges(grammar.rules.size());
  for (std::size_t rule = 0; rule < grammar.rules.size(); ++rule) {
    for (std::uint32_t i : grammar.rules[rule]) {
      for (; is_rule(grammar.symbols[i]); ++i) {
        const Grammar::Symbol& symbol = grammar.symbols[i];
        const std::uint32_t first = rule_of(grammar, symbol);
        const bool is_once = symbol.kind == Kind::kRule || grammar.repeats[symbol.value].most == 1;
        edges[rule].push_back({first, is_once && grammar.symbols[i + 1].kind == Kind::kEnd});
        if (!is_empty[first] && !is_optional(grammar, symbol)) break;
      }
    }
  }
  return edges;
}

// Returns the number of each node's strongly connected component: [n]. Uses Tarjan's algorithm.
std::vector<std::uint32_t> find_components(const std::vector<std::vector<Edge>>& edges) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const std::size_t n = edges.size();
  std::vector<std::uint32_t> index(n, kNone), lowest(n), component(n, kNone), path;
  struct Visit {
    std::uint32_t node;
    std::size_t i_edge = 0;
  };
  std::uint32_t n_seen = 0, n_components = 0;
  for (std::uint32_t start = 0; start < n; ++start) {
    if (index[start] != kNone) continue;
    std::vector<Visit> open{{start}};
    while (!open.empty()) {
      Visit& visit = open.back();
      const std::uint32_t node = visit.node;
      if (visit.i_edge == 0) {
        index[node] = lowest[node] = n_seen++;
        path.push_back(node);
      }
      if (visit.i_edge < edges[node].size()) {
        const std::uint32_t next = edges[node][visit.i_edge++].to;
        if (index[next] == kNone) {
          open.push_back({next});
        } else if (component[next] == kNone) {
          lowest[node] = std::min(lowest[node], index[next]);
        }
        continue;
      }
      if (lowest[node] == index[node]) {
        for (std::uint32_t member = kNone; member != node;) {
          member = path.back();
          path.pop_back();
          component[member] = n_components;
        }
        ++n_components;
      }
      open.pop_back();
      if (!open.empty()) lowest[open.back().node] = std::min(lowest[open.back().node], lowest[node]);
    }
  }
  return component;
}

}  // namespace

bool is_left_recursive(const Grammar& grammar) {
  const std::vector<std::vector<Edge>> edges = find_edges(grammar);
  const std::vector<std::uint32_t> component = find_components(edges);
  for (std::size_t rule = 0; rule < edges.size(); ++rule) {
    for (const Edge& edge : edges[rule]) {
      if (!edge.is_last && component[edge.to] == component[rule]) return true;
    }
  }
  return false;
}

}  // namespace winnow
