#include "schema/gbnf_matcher.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

namespace winnow::test {
namespace {

using Ends = std::set<std::size_t>;  // positions where a match may end

struct Node {
  virtual ~Node() = default;
  virtual Ends match(const std::string& text, std::size_t at) const = 0;
};
using NodePointer = std::shared_ptr<Node>;
using Rules = std::map<std::string, NodePointer>;

struct Literal : Node {
  std::string bytes;
  Ends match(const std::string& text, std::size_t at) const override {
    return text.compare(at, bytes.size(), bytes) == 0 ? Ends{at + bytes.size()} : Ends{};
  }
};

// A class of bytes; a negated class matches a whole UTF-8 character.
struct Class : Node {
  std::vector<std::pair<unsigned char, unsigned char>> ranges;
  bool is_negated = false;
  Ends match(const std::string& text, std::size_t at) const override {
    if (at >= text.size()) return {};
    const auto byte = static_cast<unsigned char>(text[at]);
    bool is_in = false;
    for (const auto& [low, high] : ranges) is_in |= byte >= low && byte <= high;
    if (is_in == is_negated) return {};
    std::size_t end = at + 1;
    while (byte >= 0xC0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    return {end};
  }
};

struct Reference : Node {
  std::string name;
  const Rules* rules = nullptr;
  // A rule that is only another rule's name is followed in a loop, so that a chain of thousands does not deepen the
  // stack.
  Ends match(const std::string& text, std::size_t at) const override {
    const Node* node = rules->at(name).get();
    while (const auto* next = dynamic_cast<const Reference*>(node)) node = rules->at(next->name).get();
    return node->match(text, at);
  }
};

struct Sequence : Node {
  std::vector<NodePointer> parts;
  Ends match(const std::string& text, std::size_t at) const override {
    Ends ends{at};
    for (const NodePointer& part : parts) {
      Ends next;
      for (const std::size_t end : ends) next.merge(part->match(text, end));
      ends = next;
    }
    return ends;
  }
};

struct Alternatives : Node {
  std::vector<NodePointer> options;
  Ends match(const std::string& text, std::size_t at) const override {
    Ends ends;
    for (const NodePointer& option : options) ends.merge(option->match(text, at));
    return ends;
  }
};

struct Repeat : Node {
  NodePointer item;
  int least = 0, most = -1;
  Ends match(const std::string& text, std::size_t at) const override {
    Ends all, ends{at};
    if (least == 0) all.insert(at);
    for (int n = 1; (most < 0 || n <= most) && !ends.empty(); ++n) {
      Ends next;
      for (const std::size_t end : ends) {
        for (const std::size_t further : item->match(text, end)) {
          if (further > end || n < least) next.insert(further);
        }
      }
      ends = next;
      if (n >= least) all.insert(ends.begin(), ends.end());
    }
    return all;
  }
};

class Parser {
 public:
  Parser(const std::string& text, Rules& rules) : text_(text), rules_(rules) {}

  void parse() {
    for (skip(true); at_ < text_.size(); skip(true)) {
      const std::string name = identifier();
      skip(false);
      if (text_.compare(at_, 3, "::=") != 0) throw std::runtime_error("no ::= at " + text_.substr(at_, 20));
      at_ += 3;
      rules_[name] = alternatives();
    }
  }

 private:
  void skip(bool lines) {
    while (at_ < text_.size() && (text_[at_] == ' ' || (lines && text_[at_] == '\n'))) ++at_;
  }
  std::string identifier() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  unsigned char character() {
    if (text_[at_] != '\\') return static_cast<unsigned char>(text_[at_++]);
    const char c = text_[at_ + 1];
    at_ += 2;
    if (c == 'x') {
      at_ += 2;
      return static_cast<unsigned char>(std::strtol(text_.substr(at_ - 2, 2).c_str(), nullptr, 16));
    }
    return static_cast<unsigned char>(c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c);
  }
  // Returns the only node of a list with one node, else the list.
  static NodePointer only(const std::vector<NodePointer>& nodes, const NodePointer& list) {
    return nodes.size() == 1 ? nodes.front() : list;
  }
  NodePointer alternatives() {
    auto node = std::make_shared<Alternatives>();
    for (;;) {
      node->options.push_back(sequence());
      skip(false);
      if (at_ >= text_.size() || text_[at_] != '|') return only(node->options, node);
      ++at_;
    }
  }
  NodePointer sequence() {
    auto node = std::make_shared<Sequence>();
    for (;;) {
      skip(false);
      if (at_ >= text_.size() || text_[at_] == '|' || text_[at_] == ')' || text_[at_] == '\n') {
        return only(node->parts, node);
      }
      node->parts.push_back(repeated(atom()));
    }
  }
  NodePointer atom() {
    if (text_[at_] == '"') {
      auto node = std::make_shared<Literal>();
      for (++at_; text_[at_] != '"';) node->bytes += static_cast<char>(character());
      ++at_;
      return node;
    }
    if (text_[at_] == '(') {
      ++at_;
      NodePointer node = alternatives();
      if (text_[at_++] != ')') throw std::runtime_error("no )");
      return node;
    }
    if (text_[at_] == '[') {
      auto node = std::make_shared<Class>();
      if (text_[++at_] == '^') {
        node->is_negated = true;
        ++at_;
      }
      while (text_[at_] != ']') {
        const unsigned char low = character();
        unsigned char high = low;
        if (text_[at_] == '-' && text_[at_ + 1] != ']') {
          ++at_;
          high = character();
        }
        node->ranges.emplace_back(low, high);
      }
      ++at_;
      return node;
    }
    auto node = std::make_shared<Reference>();
    node->name = identifier();
    node->rules = &rules_;
    if (node->name.empty()) throw std::runtime_error("what is " + text_.substr(at_, 20));
    return node;
  }
  NodePointer repeated(NodePointer item) {
    if (at_ >= text_.size()) return item;
    auto node = std::make_shared<Repeat>();
    node->item = item;
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?') {
      node->least = c == '+' ? 1 : 0;
      node->most = c == '?' ? 1 : -1;
      ++at_;
      return node;
    }
    if (c != '{') return item;
    char* end = nullptr;
    node->least = static_cast<int>(std::strtol(text_.c_str() + at_ + 1, &end, 10));
    node->most = node->least;
    if (*end == ',') {
      const char* from = end + 1;
      node->most = *from == '}' ? -1 : static_cast<int>(std::strtol(from, &end, 10));
      if (node->most < 0) end = const_cast<char*>(from);
    }
    at_ = static_cast<std::size_t>(end - text_.c_str()) + 1;
    return node;
  }

  const std::string& text_;
  Rules& rules_;
  std::size_t at_ = 0;
};

}  // namespace

bool gbnf_matches(const std::string& grammar, const std::string& text) {
  Rules rules;
  Parser(grammar, rules).parse();
  return rules.at("root")->match(text, 0).contains(text.size());
}

}  // namespace winnow::test
