#include "batch/prefill_slices.h"

#include <cstddef>
#include <span>

#include "batch/admission.h"
#include "batch/request_failure.h"
#include "batch/scored_token.h"

namespace winnow {
namespace {

// A prefill keeps its turn for this long, since every change of layer or prompt converts a layer's weights anew.
constexpr double kTurnSeconds = 0.05;

// Returns the next part to read of a sequence, up to its snapshot or to its end.
std::span<const Token> next_part(std::span<const Token> tokens, std::int32_t n_read, std::int32_t snapshot_at) {
  const auto n = static_cast<std::size_t>(n_read);
  const std::size_t end = snapshot_at > n_read ? static_cast<std::size_t>(snapshot_at) : tokens.size();
  return tokens.subspan(n, end - n);
}

// Reports token i of the sequence with its probability, if it is one of the prompt.
void score(const Model& model, const BatchJob& job, std::size_t i, std::span<const float> logits) {
  const BatchRequest& request = job.request;
  if (i < request.context.size() || i >= job.tokens.size() || !job.callbacks.on_prompt_token) return;
  job.callbacks.on_prompt_token(scored_token(model, 0, job.tokens[i], logits, request.n_prompt_probabilities));
}

}  // namespace

bool PrefillSlices::start_part(BatchJob& job) {
  const std::int32_t n_read = job.session->n_tokens();
  const std::span<const Token> part = next_part(job.tokens, n_read, job.snapshot_at);
  if (part.empty()) return false;
  const BatchRequest& request = job.request;
  PrefillOptions callbacks;
  if (job.embedding) {
    callbacks.on_hidden = [&pool = *job.embedding](std::int32_t position, std::span<const float> row) {
      pool.add(position, row);
    };
  }
  if (scores_prompt(request)) {
    const Model& model = *engine_.model();
    const auto first = static_cast<std::size_t>(n_read);
    if (first == request.context.size()) {
      score(model, job, first, n_read > 0 ? job.session->logits() : std::span<const float>());
    }
    callbacks.on_logits = [&model, &job](std::int32_t position, std::span<const float> logits) {
      score(model, job, static_cast<std::size_t>(position) + 1, logits);
    };
  }
  const bool is_cut = request.session.eviction.evicts() && request.context.empty();
  Session* session = &*job.session;
  prefills_.push_back({.owner = &job,
                       .prefill = n_read == 0 || is_cut ? engine_.start_prefill(std::span(&session, 1), part, callbacks)
                                                        : engine_.start_append(*session, part, callbacks),
                       .n_tokens = static_cast<std::int32_t>(part.size())});
  return true;
}

void PrefillSlices::start_part(const PrefixPointer& context) {
  Session* session = &context->session;
  const std::span<const Token> part = next_part(context->tokens, session->n_tokens(), context->snapshot_at);
  prefills_.push_back({.owner = context,
                       .prefill = engine_.start_prefill(std::span(&session, 1), part),
                       .n_tokens = static_cast<std::int32_t>(part.size())});
}

void PrefillSlices::stop(const PrefillOwner& owner) {
  prefills_.remove_if([&](const ScheduledPrefill& scheduled) { return scheduled.owner == owner; });
}

void PrefillSlices::run(double seconds) {
  const auto start = BatchClock::now();
  auto before = start;
  do {
    const bool goes_on = run_slice(prefills_.front());
    ++totals_.slices;
    const auto now = BatchClock::now();
    turn_s_ += seconds_between(before, now);
    before = now;
    if (!goes_on || turn_s_ > kTurnSeconds) {
      if (goes_on) prefills_.splice(prefills_.end(), prefills_, prefills_.begin());
      turn_s_ = 0;
    }
  } while (!prefills_.empty() && seconds_between(start, before) < seconds);
  totals_.prefill_s += seconds_between(start, before);
}

// Returns whether the prefill goes on.
bool PrefillSlices::run_slice(ScheduledPrefill& scheduled) {
  const PrefillOwner owner = scheduled.owner;  // it hears of the end when `scheduled` is gone
  RequestFailure failure;
  try {
    if (scheduled.prefill.step()) {
      listener_.note_slice(scheduled);
      return true;
    }
    totals_.prompt_tokens += scheduled.n_tokens;
    prefills_.pop_front();
    std::visit([&](const auto& one) { listener_.finish_part(one); }, owner);
    return false;
  } catch (...) {
    failure = failure_in_flight();
  }
  std::visit([&](const auto& one) { listener_.fail_part(one, failure.code, failure.message); }, owner);
  return false;
}

}  // namespace winnow
