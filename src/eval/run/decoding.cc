#include "eval/run/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "winnow/error.h"
#include "winnow/log_softmax.h"

namespace winnow::eval {

Token most_likely(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Token newline_token(const Model& model) {
  const std::vector<Token> tokens = model.tokenize("\n", false, false);
  return tokens.empty() ? -1 : tokens.back();
}

bool adds_space(const Model& model) {
  const std::vector<Token> tokens = model.tokenize("a", false, false);
  return !tokens.empty() && model.token_text(tokens.front()).starts_with(' ');
}

// Model::detokenize would also take spaces before punctuation off the texts of byte pairs.
std::string answer_text(const Model& model, std::span<const Token> tokens) {
  std::string text;
  for (const Token token : tokens) text += model.token_text(token);
  if (text.starts_with(' ') && adds_space(model)) text.erase(0, 1);
  return valid_utf8(text);
}

std::vector<double> forced_nll(Engine& engine, std::span<Session* const> sessions,
                               std::span<const std::vector<Token>> tokens, const StopCheck& should_stop) {
  std::vector<double> nll(sessions.size(), 0);
  for (std::size_t place = 0;; ++place) {
    std::vector<Session*> fed;
    std::vector<Token> feed;
    bool any = false;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      if (place >= tokens[i].size()) continue;
      any = true;
      nll[i] -= log_probability(sessions[i]->logits(), tokens[i][place]) / static_cast<double>(tokens[i].size());
      if (place + 1 == tokens[i].size()) continue;
      fed.push_back(sessions[i]);
      feed.push_back(tokens[i][place]);
    }
    if (!any) return nll;
    if (should_stop()) throw Error(ErrorCode::kCancelled, "the evaluation was stopped");
    if (!fed.empty()) engine.decode(fed, feed);
  }
}

GenerationBatch::GenerationBatch(std::shared_ptr<Engine> engine, Token newline)
    : engine_(std::move(engine)), newline_(newline) {}

void GenerationBatch::add(std::size_t index, Session& session, const GenerationLimits& limits) {
  running_.push_back({.index = index, .session = &session, .limits = limits});
}

std::vector<std::size_t> GenerationBatch::running() const {
  std::vector<std::size_t> indices;
  for (const Sequence& sequence : running_) indices.push_back(sequence.index);
  return indices;
}

// The benchmarks' code for answers of one line forbids every end token as the first token.
Token GenerationBatch::next_token(const Sequence& sequence) const {
  const std::span<const float> logits = sequence.session->logits();
  const Token best = most_likely(logits);
  const Model& model = *engine_->model();
  if (!sequence.limits.stop_at_newline || !sequence.tokens.empty()) return best;
  const auto is_end = [&](Token token) { return token == newline_ || model.is_end_of_generation(token); };
  if (!is_end(best)) return best;
  Token allowed = best;
  float highest = -std::numeric_limits<float>::infinity();
  for (Token token = 0; token < static_cast<Token>(logits.size()); ++token) {
    const float logit = logits[static_cast<std::size_t>(token)];
    if (logit > highest && !is_end(token)) {
      highest = logit;
      allowed = token;
    }
  }
  return allowed;
}

bool GenerationBatch::choose(Sequence& sequence) const {
  if (static_cast<int>(sequence.tokens.size()) >= sequence.limits.max_new) return false;
  const Token token = next_token(sequence);
  if (engine_->model()->is_end_of_generation(token)) return false;
  if (sequence.limits.stop_at_newline && token == newline_) return false;
  sequence.tokens.push_back(token);
  // No prediction is read after the last token, so it need not be fed.
  return static_cast<int>(sequence.tokens.size()) < sequence.limits.max_new;
}

std::vector<GenerationBatch::Finished> GenerationBatch::step() {
  std::vector<Finished> finished;
  std::vector<Sequence> going_on;
  for (Sequence& sequence : running_) {
    if (choose(sequence)) {
      going_on.push_back(std::move(sequence));
    } else {
      finished.push_back({sequence.index, std::move(sequence.tokens)});
    }
  }
  running_ = std::move(going_on);
  if (running_.empty()) return finished;
  std::vector<Session*> sessions;
  std::vector<Token> tokens;
  for (const Sequence& sequence : running_) {
    sessions.push_back(sequence.session);
    tokens.push_back(sequence.tokens.back());
  }
  engine_->decode(sessions, tokens);
  return finished;
}

}  // namespace winnow::eval
