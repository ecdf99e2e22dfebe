#include "text/template_limits.h"

#include <jinja/lexer.h>
#include <jinja/parser.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow {
namespace {

using jinja::statement_ptr;
using jinja::value;

// The largest template of the well-known models has 17 kB, expressions of up to 60 tokens and 12 levels.
constexpr std::size_t kMostSourceBytes = 256 << 10;
constexpr std::size_t kMostTagTokens = 1000;
constexpr int kMostLevels = 100;
// A node takes some hundred bytes of the stack.
constexpr int kMostDepth = 1000;
constexpr std::size_t kMostTextBytes = 64 << 20;
constexpr std::size_t kMostItems = 1'000'000;  // of a list, nested ones included
constexpr int kMostListLevels = 100;
constexpr std::int64_t kMostIndent = 64, kMostRange = 100'000, kMostRepeats = 100'000;
// A text costs a step for each so many bytes.
constexpr std::size_t kStepBytes = 64;

thread_local TemplateBudget* budget = nullptr;

[[noreturn]] void fail(const std::string& reason) { throw TemplateLimit{reason}; }

void check_text_bytes(std::size_t n, std::size_t times = 1) {
  if (times == 0 || n <= kMostTextBytes / times) return;
  fail("makes a text of more than " + std::to_string(kMostTextBytes >> 20) + " MiB");
}

// Counts the step and the depth of a node while it runs.
class Step {
 public:
  Step() {
    budget->spend(1);
    if (++budget->depth > kMostDepth) fail("calls itself or is nested too deeply");
  }
  ~Step() { --budget->depth; }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
};

// Counts all values that are written when a value is written: one that it contains twice counts twice. Throws
// TemplateLimit for too many of them.
void count_items(const value& one, std::size_t& n, int level) {
  if (level > kMostListLevels) fail("nests lists too deeply");
  if (++n > kMostItems) fail("makes a list of more than " + std::to_string(kMostItems) + " items");
  if (one == nullptr) return;
  for (const value& inner : one->val_arr) count_items(inner, n, level + 1);
  for (const auto& [key, inner] : one->val_obj) count_items(inner, n, level + 1);
}

std::size_t text_bytes(const value& one) {
  std::size_t n = 0;
  for (const jinja::string_part& part : one->val_str.parts) n += part.val.size();
  return n;
}

// Takes the steps for a value that a node made from the budget and returns it. Throws TemplateLimit if it is too large.
value weighed(value made) {
  if (made == nullptr) return made;
  const std::size_t n_bytes = text_bytes(made);
  check_text_bytes(n_bytes);
  std::size_t n_items = 0;
  if (!made->val_arr.empty() || !made->val_obj.empty()) count_items(made, n_items, 0);
  budget->spend(n_bytes / kStepBytes + made->val_str.parts.size() / 4 + n_items / 4);
  return made;
}

// An expression whose value is known already.
struct Held : jinja::expression {
  explicit Held(value the_value) : held(std::move(the_value)) {}
  value execute_impl(jinja::context&) const override { return held; }
  value held;
};

statement_ptr hold(const value& one) { return std::make_unique<Held>(one); }

value without_name(const value& argument) {
  const auto* named = jinja::cast_val<jinja::value_kwarg>(argument);
  return named == nullptr ? argument : named->val;
}

std::size_t count_of(std::string_view text, std::string_view what) {
  if (what.empty()) return text.size() + 1;
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

// Checks the calls of functions whose result may be larger than all their arguments.
void check_call(const std::string& name, const value& self, std::vector<value> arguments) {
  for (value& argument : arguments) argument = without_name(argument);
  const auto text = [&](std::size_t i) { return i < arguments.size() ? arguments[i]->val_str.str() : std::string(); };
  if (name == "range") {
    for (const value& argument : arguments) {
      if (!jinja::is_val<jinja::value_int>(argument)) continue;
      if (argument->val_int < -kMostRange || argument->val_int > kMostRange) {
        fail("asks for a range beyond " + std::to_string(kMostRange));
      }
    }
  } else if (name == "tojson" || name == "indent") {
    for (const value& argument : arguments) {
      if (jinja::is_val<jinja::value_int>(argument) && (argument->val_int < 0 || argument->val_int > kMostIndent)) {
        fail("indents by more than " + std::to_string(kMostIndent));
      }
      if (self != nullptr)
        check_text_bytes(std::max<std::size_t>(text_bytes(argument), kMostIndent),
                         count_of(self->val_str.str(), "\n") + 1);
    }
  } else if (self == nullptr) {
    return;
  } else if (name == "replace") {
    check_text_bytes(text(1).size(), count_of(self->val_str.str(), text(0)));
  } else if (name == "join") {
    check_text_bytes(text(0).size(), self->val_arr.size());
  } else if (name == "split" || name == "rsplit") {
    if (count_of(self->val_str.str(), text(0).empty() ? " " : text(0)) > kMostItems / 8) {
      fail("splits a text into more than " + std::to_string(kMostItems / 8) + " parts");
    }
  }
}

bool may_grow(const std::string& name) {
  static const std::vector<std::string> kNames = {"range", "tojson", "indent", "replace",
                                                  "join",  "split",  "rsplit", "append"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<value> run_all(const jinja::statements& nodes, jinja::context& context) {
  std::vector<value> values;
  for (const statement_ptr& node : nodes) values.push_back(node->execute(context));
  return values;
}

std::unique_ptr<jinja::call_expression> call_of(statement_ptr callee, const std::vector<value>& arguments) {
  jinja::statements held;
  for (const value& argument : arguments) held.push_back(hold(argument));
  return std::make_unique<jinja::call_expression>(std::move(callee), std::move(held));
}

// A node that counts its step. It is still of its kind, which the interpreter asks for.
template <typename Node>
struct Counted : Node {
  explicit Counted(Node&& node) : Node(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    value made = Node::execute_impl(context);
    if (made != nullptr) budget->spend(made->val_arr.size() / 16);  // the items of a slice
    return made;
  }
};

// A node that makes new values and counts them.
template <typename Node>
struct Bounded : Node {
  explicit Bounded(Node&& node) : Node(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    return weighed(Node::execute_impl(context));
  }
};

// Counts a list after an item was appended. If that fails the item is removed again, since a list that contains itself
// would never be freed.
void weigh_appended(const value& list) {
  if (list == nullptr) return;
  try {
    weighed(list);
  } catch (const TemplateLimit&) {
    if (!list->val_arr.empty()) list->val_arr.pop_back();
    throw;
  }
}

struct BoundedBinary : jinja::binary_expression {
  explicit BoundedBinary(jinja::binary_expression&& node) : jinja::binary_expression(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    if (op.value != "*") return weighed(jinja::binary_expression::execute_impl(context));
    const value first = left->execute(context), second = right->execute(context);
    const auto check = [](const value& text, const value& times) {
      const bool is_repeated = jinja::is_val<jinja::value_string>(text) && jinja::is_val<jinja::value_int>(times);
      if (is_repeated && times->val_int > kMostRepeats)
        fail("repeats a text more than " + std::to_string(kMostRepeats) + " times");
      if (is_repeated && times->val_int > 0) {
        check_text_bytes(std::max<std::size_t>(text_bytes(text), 1), static_cast<std::size_t>(times->val_int));
      }
    };
    check(first, second);
    check(second, first);
    return weighed(jinja::binary_expression(op, hold(first), hold(second)).execute_impl(context));
  }
};

struct BoundedFilter : jinja::filter_expression {
  explicit BoundedFilter(jinja::filter_expression&& node) : jinja::filter_expression(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    const auto* call = dynamic_cast<const jinja::call_expression*>(filter.get());
    const auto* name = dynamic_cast<const jinja::identifier*>(call != nullptr ? call->callee.get() : filter.get());
    if (name == nullptr || !may_grow(name->val)) return weighed(jinja::filter_expression::execute_impl(context));
    const value self = operand->execute(context);
    const std::vector<value> arguments = call != nullptr ? run_all(call->args, context) : std::vector<value>();
    check_call(name->val, self, arguments);
    auto same_name = std::make_unique<jinja::identifier>(name->val);
    const jinja::filter_expression run(
        hold(self), call != nullptr ? statement_ptr(call_of(std::move(same_name), arguments)) : std::move(same_name));
    value made = run.execute_impl(context);
    if (name->val == "append") weigh_appended(self);
    return weighed(made);
  }
};

struct BoundedCall : jinja::call_expression {
  explicit BoundedCall(jinja::call_expression&& node) : jinja::call_expression(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    const std::vector<value> arguments = run_all(args, context);
    value function = callee->execute(context);
    if (const auto* known = jinja::cast_val<jinja::value_func>(function); known != nullptr && may_grow(known->name)) {
      check_call(known->name, known->arg0, arguments);
    }
    value made = call_of(hold(function), arguments)->execute_impl(context);
    if (const auto* known = jinja::cast_val<jinja::value_func>(function); known != nullptr && known->name == "append") {
      weigh_appended(known->arg0);
    }
    return weighed(made);
  }
};

// A statement that sets a variable or member. For a member the whole object is counted, since it may now contain
// itself.
struct BoundedSet : jinja::set_statement {
  explicit BoundedSet(jinja::set_statement&& node) : jinja::set_statement(std::move(node)) {}
  value execute_impl(jinja::context& context) const override {
    const Step step;
    value made = jinja::set_statement::execute_impl(context);
    const auto* member = dynamic_cast<const jinja::member_expression*>(assignee.get());
    if (member == nullptr) return made;
    const value object = member->object->execute(context);
    try {
      weighed(object);
    } catch (const TemplateLimit&) {
      if (const auto* name = dynamic_cast<const jinja::identifier*>(member->property.get())) {
        object->insert(jinja::mk_val<jinja::value_string>(name->val), jinja::mk_val<jinja::value_none>());
      }
      throw;
    }
    return made;
  }
};

// The items of a loop. Each takes four steps, whatever the loop does with it.
struct BoundedItems : jinja::expression {
  explicit BoundedItems(statement_ptr the_items) : items(std::move(the_items)) {}
  value execute_impl(jinja::context& context) const override {
    value all = items->execute(context);
    budget->spend(4 * (all->val_arr.size() + all->val_obj.size()));
    return all;
  }
  statement_ptr items;
};

void bound(statement_ptr& node);
void bound(jinja::statements& nodes) {
  for (statement_ptr& node : nodes) bound(node);
}

// Replaces a node of kind Node by one that counts. Returns false if the node is of another kind.
template <typename Node, typename Instead = Counted<Node>, typename Inner>
bool replace(statement_ptr& node, Inner bound_inner) {
  auto* same = dynamic_cast<Node*>(node.get());
  if (same == nullptr) return false;
  bound_inner(*same);
  auto instead = std::make_unique<Instead>(std::move(*same));
  node = std::move(instead);
  return true;
}

void bound(statement_ptr& node) {
  if (node == nullptr) return;
  replace<jinja::if_statement, Bounded<jinja::if_statement>>(
      node, [](auto& one) { bound(one.test), bound(one.body), bound(one.alternate); }) ||
      replace<jinja::for_statement, Bounded<jinja::for_statement>>(
          node,
          [](auto& one) {
            bound(one.body), bound(one.default_block);
            auto* chosen = dynamic_cast<jinja::select_expression*>(one.iterable.get());
            statement_ptr& items = chosen != nullptr ? chosen->lhs : one.iterable;
            if (chosen != nullptr) bound(chosen->test);
            bound(items);
            items = std::make_unique<BoundedItems>(std::move(items));
          }) ||
      replace<jinja::set_statement, BoundedSet>(node, [](auto& one) { bound(one.val), bound(one.body); }) ||
      replace<jinja::macro_statement>(node, [](auto& one) { bound(one.args), bound(one.body); }) ||
      replace<jinja::filter_statement, Bounded<jinja::filter_statement>>(node, [](auto& one) { bound(one.body); }) ||
      replace<jinja::call_statement, Bounded<jinja::call_statement>>(
          node,
          [](auto& one) {
            auto* call = dynamic_cast<jinja::call_expression*>(one.call.get());
            if (call != nullptr) bound(call->args);
            bound(one.body);
          }) ||
      replace<jinja::binary_expression, BoundedBinary>(node, [](auto& one) { bound(one.left), bound(one.right); }) ||
      replace<jinja::filter_expression, BoundedFilter>(node,
                                                       [](auto& one) {
                                                         bound(one.operand);
                                                         auto* call =
                                                             dynamic_cast<jinja::call_expression*>(one.filter.get());
                                                         if (call != nullptr) bound(call->args);
                                                       }) ||
      replace<jinja::call_expression, BoundedCall>(node, [](auto& one) { bound(one.callee), bound(one.args); }) ||
      replace<jinja::member_expression>(node,
                                        [](auto& one) {
                                          bound(one.object);
                                          auto* slice = dynamic_cast<jinja::slice_expression*>(one.property.get());
                                          if (slice != nullptr) {
                                            bound(slice->start_expr), bound(slice->stop_expr), bound(slice->step_expr);
                                          } else if (one.computed) {
                                            bound(one.property);
                                          }
                                        }) ||
      replace<jinja::test_expression>(node,
                                      [](auto& one) {
                                        bound(one.operand);
                                        auto* call = dynamic_cast<jinja::call_expression*>(one.test.get());
                                        if (call != nullptr) bound(call->args);
                                      }) ||
      replace<jinja::select_expression>(node, [](auto& one) { bound(one.lhs), bound(one.test); }) ||
      replace<jinja::unary_expression>(node, [](auto& one) { bound(one.argument); }) ||
      replace<jinja::ternary_expression>(
          node, [](auto& one) { bound(one.condition), bound(one.true_expr), bound(one.false_expr); }) ||
      replace<jinja::keyword_argument_expression>(node, [](auto& one) { bound(one.val); }) ||
      replace<jinja::array_literal, Bounded<jinja::array_literal>>(node, [](auto& one) { bound(one.val); }) ||
      replace<jinja::tuple_literal, Bounded<jinja::tuple_literal>>(node, [](auto& one) { bound(one.val); }) ||
      replace<jinja::object_literal, Bounded<jinja::object_literal>>(node, [](auto& one) {
        for (auto& [key, inner] : one.val) bound(key), bound(inner);
      });
}

int level_change(jinja::token::type type) {
  switch (type) {
    case jinja::token::open_paren:
    case jinja::token::open_square_bracket:
    case jinja::token::open_curly_bracket:
      return 1;
    case jinja::token::close_paren:
    case jinja::token::close_square_bracket:
    case jinja::token::close_curly_bracket:
      return -1;
    default:
      return 0;
  }
}

// Returns whether a tag sets a name to the text up to its end tag, which is so if there is no "=" outside brackets.
bool is_block_set(const std::vector<jinja::token>& tokens, std::size_t tag) {
  int n_open = 0;
  for (std::size_t i = tag; i < tokens.size() && tokens[i].t != jinja::token::close_statement; ++i) {
    n_open += level_change(tokens[i].t);
    if (n_open == 0 && tokens[i].t == jinja::token::equals) return false;
  }
  return true;
}

// Throws TemplateLimit if the tokens are nested too deeply for the parser, which is recursive. A chain of elif counts
// as nested, too.
void check_nesting(const std::vector<jinja::token>& tokens) {
  static const std::set<std::string> kBlocks = {"if", "for", "macro", "call", "filter"};
  static const std::set<std::string> kEnds = {"endif", "endfor", "endmacro", "endcall", "endfilter", "endset"};
  std::size_t n_tag = 0;    // tokens since the last tag began
  int n_brackets = 0;       // open brackets
  std::vector<int> blocks;  // open blocks, each with the levels that it has taken
  int n_levels = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_statement = tokens[i].t == jinja::token::open_statement;
    if (is_statement || tokens[i].t == jinja::token::open_expression) n_tag = 0, n_brackets = 0;
    if (++n_tag > kMostTagTokens) fail("has an expression of more than " + std::to_string(kMostTagTokens) + " tokens");
    n_brackets += level_change(tokens[i].t);
    if (n_brackets > kMostLevels) fail("has brackets in more than " + std::to_string(kMostLevels) + " levels");
    if (!is_statement || i + 1 == tokens.size()) continue;
    const std::string& name = tokens[i + 1].value;
    const bool is_block = kBlocks.contains(name) || (name == "set" && is_block_set(tokens, i));
    if (is_block) blocks.push_back(0);
    if (is_block || (name == "elif" && !blocks.empty())) {
      ++blocks.back();
      if (++n_levels > kMostLevels) fail("is nested deeper than " + std::to_string(kMostLevels) + " levels");
    }
    if (kEnds.contains(name) && !blocks.empty()) {
      n_levels -= blocks.back();
      blocks.pop_back();
    }
  }
}

}  // namespace

TemplateBudget::TemplateBudget(std::size_t n_steps) : n_left(n_steps) { budget = this; }
TemplateBudget::~TemplateBudget() { budget = nullptr; }

void TemplateBudget::spend(std::size_t n_steps) {
  if (n_steps > n_left) {
    n_left = 0;  // code that ignores the error fails at its next step
    fail("takes too many steps");
  }
  n_left -= n_steps;
}

jinja::program parse_bounded_template(const std::string& source) {
  if (source.size() > kMostSourceBytes) fail("has more than " + std::to_string(kMostSourceBytes >> 10) + " KiB");
  const jinja::lexer_result lexed = jinja::lexer().tokenize(source);
  check_nesting(lexed.tokens);
  jinja::program program = jinja::parse_from_tokens(lexed);
  bound(program.body);
  return program;
}

}  // namespace winnow
