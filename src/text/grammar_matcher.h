// The matcher of grammars, which says what tokens may come next in a text that a grammar describes. Its steps are
// counted and bounded, so that no grammar can block the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer.h"

namespace winnow {

// A text that is matched token by token. All methods throw Error(kInvalidArgument) if the grammar is so ambiguous that
// they would take too many steps; the matcher cannot be used after that. Not thread-safe.
class GrammarMatcher {
 public:
  // The most steps for one next token, of some tens of nanoseconds each; calls about many tokens or bytes may take
  // more. JSON schemas take a few thousand.
  static constexpr std::size_t kMostSteps = 300'000;

  // Begins an empty text. `tokenizer` has to outlive the matcher.
  GrammarMatcher(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer, std::size_t n_steps = kMostSteps);

  // Returns true if the token may come next.
  bool allows(Token token);
  // Returns for each token if it may come next: [n_vocab].
  std::vector<bool> allowed();
  // Appends a token. Throws Error(kInvalidArgument) if it may not come next.
  void accept(Token token);
  // Appends a text, which may end within a character, and returns true. If it may not come next, nothing is appended,
  // and false is returned.
  bool accept_text(std::string_view text);

 private:
  // A stack of symbols that are left to match, innermost first: a symbol, and the stack that follows its sequence. Node
  // 0 is the empty stack. Equal stacks are one node, and a node's parent is always an earlier one.
  struct Node {
    std::uint32_t symbol = 0, parent = 0;
    std::uint32_t count = 0;  // number of times that a repetition has begun
  };
  // The stacks after a text, each of which waits for a character or token, or is empty (the text may end there), and
  // the bytes of a character that is not complete. Stacks that wait for one certain character come first, by code
  // point.
  struct State {
    std::vector<std::uint32_t> nodes;
    std::size_t n_characters = 0;    // stacks that wait for one certain character
    std::uint32_t bits = 0;          // bits so far of the incomplete character
    int n_missing = 0, n_bytes = 0;  // its bytes still to come, and all of its bytes
  };
  class Paths;

  void spend(std::size_t n_steps);
  std::uint32_t node_of(std::uint32_t symbol, std::uint32_t parent, std::uint32_t count = 0);
  // Returns the stack after the symbol of a node.
  std::uint32_t after(std::uint32_t node);
  // Returns the symbol for which a stack waits.
  Grammar::Symbol awaited(std::uint32_t node) const { return grammar_->symbols[nodes_[node].symbol]; }
  // Follows the rules on top of the stacks in `open_` to the stacks of a state.
  void expand(State& to);
  // Adds the alternatives of a rule to `open_`, each with the stack `behind` after it.
  void open_rule(std::uint32_t rule, std::uint32_t behind);
  // Adds the continuations of a stack that waits for a repetition to `open_`.
  void open_repeat(std::uint32_t node, const Grammar::Repeat& repeat);
  // Sorts the stacks of a state and removes duplicates.
  void arrange(State& state) const;
  // Makes `to` the state after one more byte. It has no nodes if the byte does not fit.
  void step(const State& from, unsigned char byte, State& to);
  // Finds the stacks that wait for a character from `first` to `last`.
  void find_waiting(const State& from, std::uint32_t first, std::uint32_t last, std::vector<std::uint32_t>& found);
  bool may_end() const;
  // Returns the state after a token that the grammar names.
  State behind_token(Token token);
  // Returns the state after a text, without nodes if the text does not fit.
  State after_text(std::string_view text);
  // Removes nodes that no stack needs any more.
  void tidy();

  std::shared_ptr<const Grammar> grammar_;
  const Tokenizer& tokenizer_;
  std::size_t n_steps_;  // most steps for one next token
  State state_;
  std::size_t n_left_ = 0;  // steps that are left to the present call
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> table_;  // nodes by their content, open addressing; 0: free
  std::vector<std::uint32_t> marks_;  // [nodes] number of the expansion that met a node last
  std::vector<std::uint32_t> open_;
  std::uint32_t n_expansions_ = 0;
};

}  // namespace winnow
