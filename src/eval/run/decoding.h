// Decodes many sequences in each step, to force references or to generate greedily, and answers to text.
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

// Returns the negative log-likelihood per token, in nats, of tokens[i] as the continuation of sessions[i]; 0 if
// tokens[i] is empty. Feeds the sessions.
std::vector<double> forced_nll(Engine& engine, std::span<Session* const> sessions,
                               std::span<const std::vector<Token>> tokens, const StopCheck& should_stop);

struct GenerationLimits {
  int max_new = 0;
  bool stop_at_newline = false;  // stops at a newline, after at least one token
};

// A batch of sequences that generate answers, each until an end token or its limit.
//
// Not thread-safe; the sessions belong to the caller and must outlive it.
class GenerationBatch {
 public:
  // `newline` is the token that ends sequences with stop_at_newline.
  GenerationBatch(std::shared_ptr<Engine> engine, Token newline);

  // Adds a sequence that continues from the session's logits. step() returns its `index`.
  void add(std::size_t index, Session& session, const GenerationLimits& limits);

  // A sequence that has ended.
  struct Finished {
    std::size_t index;
    std::vector<Token> tokens;  // without the end token
  };
  // Decodes one token of every running sequence. Returns the sequences that have ended.
  std::vector<Finished> step();
  bool is_over() const { return running_.empty(); }
  // Returns the indices of those still running, after an error.
  std::vector<std::size_t> running() const;

 private:
  struct Sequence {
    std::size_t index;
    Session* session;
    GenerationLimits limits;
    std::vector<Token> tokens;
  };
  // Appends the next token, unless the answer ends before it. Returns false if the sequence has ended.
  bool choose(Sequence& sequence) const;
  Token next_token(const Sequence& sequence) const;

  std::shared_ptr<Engine> engine_;
  Token newline_;
  std::vector<Sequence> running_;
};

// Returns the last token of "\n", or -1 if it has none.
Token newline_token(const Model& model);

// Returns true if the model's tokenizer puts a space before every text, as most of SentencePiece do.
bool adds_space(const Model& model);

// Returns an answer's text as the benchmarks' own code decodes it: without the space that such a tokenizer has put
// before it, without special tokens, and with U+FFFD for bytes that are not UTF-8.
std::string answer_text(const Model& model, std::span<const Token> tokens);

}  // namespace winnow::eval
