// Steps that decode many sequences at once: forcing references, and generating greedily.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/session.h"

namespace winnow::eval {

Token most_likely(std::span<const float> logits);

// Called between steps; true ends the work with Error(kCancelled).
using StopCheck = std::function<bool()>;

// Negative log-likelihood per token of tokens[i] (not empty) going on from sessions[i], in nats. Feeds the sessions.
std::vector<double> forced_nll(Engine& engine, std::span<Session* const> sessions,
                               std::span<const std::vector<Token>> tokens, const StopCheck& should_stop);

struct GenerationLimits {
  int max_new = 0;
  bool stop_at_newline = false;  // and at least one token
};

// Several answers on their way, each until an end token or its limit.
//
// Not thread-safe; the sessions belong to the caller and must outlive it.
class GenerationBatch {
 public:
  // `newline`: the token at which those that stop at a newline stop.
  GenerationBatch(std::shared_ptr<Engine> engine, Token newline);

  // Goes on from the session's logits. `index` comes back from step().
  void add(std::size_t index, Session& session, const GenerationLimits& limits);

  // One token for every sequence that is not over. Returns those that are over now.
  struct Finished {
    std::size_t index;
    std::vector<Token> tokens;  // without the end token
  };
  std::vector<Finished> step();
  bool is_over() const { return running_.empty(); }
  // Those still running, after an error.
  std::vector<std::size_t> running() const;

 private:
  struct Sequence {
    std::size_t index;
    Session* session;
    GenerationLimits limits;
    std::vector<Token> tokens;
  };
  // The next token, or nothing where the answer ends.
  bool choose(Sequence& sequence) const;
  Token next_token(const Sequence& sequence) const;

  std::shared_ptr<Engine> engine_;
  Token newline_;
  std::vector<Sequence> running_;
};

// The last token of "\n".
Token newline_token(const Model& model);

}  // namespace winnow::eval
