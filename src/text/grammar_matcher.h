// Which tokens may follow in a text that a grammar describes. The steps that this takes are counted and bounded, so
// that no grammar holds anybody up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer.h"

namespace winnow {

// All methods throw Error(kInvalidArgument) where the grammar is so ambiguous that they would take too many steps; the
// matcher is of no use then. Not thread-safe.
class GrammarMatcher {
 public:
  // Of one question about the next token, some tens of nanoseconds each. JSON schemas take a few thousand.
  static constexpr std::size_t kMostSteps = 300'000;

  // `tokenizer` has to outlive it.
  GrammarMatcher(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer, std::size_t n_steps = kMostSteps);

  // Whether the token may come next.
  bool allows(Token token);
  // [n_vocab]: whether a token may come next.
  std::vector<bool> allowed();
  // Takes a token as the next one. Throws Error(kInvalidArgument) if it may not come.
  void accept(Token token);
  // Takes a text, which may end within a character. False, and nothing is taken: it may not come.
  bool accept_text(std::string_view text);

 private:
  // What is left to match, innermost first: a symbol, and the stack below that follows its sequence. Node 0 is the
  // empty stack. Equal stacks are one node, and a node's parent is always an earlier one.
  struct Node {
    std::uint32_t symbol = 0, parent = 0;
    std::uint32_t count = 0;  // of a repetition: how often it has begun
  };
  // Stacks that each wait for a character or token (or are empty: the text may end), and the bytes of a character that
  // is not complete. First those that wait for one certain character, by its code point.
  struct State {
    std::vector<std::uint32_t> nodes;
    std::size_t n_characters = 0;
    std::uint32_t bits = 0;
    int n_missing = 0, n_bytes = 0;
  };
  class Paths;

  void spend(std::size_t n_steps);
  std::uint32_t node_of(std::uint32_t symbol, std::uint32_t parent, std::uint32_t count = 0);
  // The stack behind the symbol of a node.
  std::uint32_t after(std::uint32_t node);
  // The symbol that a stack waits for.
  Grammar::Symbol awaited(std::uint32_t node) const { return grammar_->symbols[nodes_[node].symbol]; }
  // Follows the rules on top of the stacks in `open_` to the stacks of a state.
  void expand(State& to);
  // Opens what a rule may be, with a stack behind it.
  void open_rule(std::uint32_t rule, std::uint32_t behind);
  // Opens what a stack that waits for a repetition may go on with.
  void open_repeat(std::uint32_t node, const Grammar::Repeat& repeat);
  // In their order, each once.
  void arrange(State& state) const;
  // The state after one more byte; no nodes: there is none.
  void step(const State& from, unsigned char byte, State& to);
  // Stacks that wait for a character from `first` to `last`.
  void find_waiting(const State& from, std::uint32_t first, std::uint32_t last, std::vector<std::uint32_t>& found);
  bool may_end() const;
  // The stacks behind tokens that the grammar names.
  State behind_token(Token token);
  // The state after a text; of no nodes where it does not fit.
  State after_text(std::string_view text);
  // Forgets nodes that no stack needs any more.
  void tidy();

  std::shared_ptr<const Grammar> grammar_;
  const Tokenizer& tokenizer_;
  std::size_t n_steps_;  // of a question
  State state_;
  std::size_t n_left_ = 0;  // steps
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> table_;  // nodes by their content, open addressing; 0: free
  std::vector<std::uint32_t> marks_;  // [nodes]: the expansion that met it last
  std::vector<std::uint32_t> open_;
  std::uint32_t n_expansions_ = 0;
};

}  // namespace winnow
