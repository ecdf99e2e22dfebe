#include "engine/prefill/loss_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "base/numbers.h"
#include "engine/evidence/layer_views.h"
#include "engine/forward.h"
#include "engine/session_options.h"
#include "winnow/log_softmax.h"

namespace winnow {
namespace {

constexpr double kRungs[] = {0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3};

constexpr std::int32_t kMostHeldOut = 128, kLeastHeldOut = 32, kPartHeldOut = 8;

// The first 1 / kPartSkipped of the held-out tokens do not count: a cut of the whole prompt keeps what the prompt's end
// attends to, not what these attend to.
constexpr std::int32_t kPartSkipped = 4;

constexpr std::int32_t kRows = 32;  // rows of logits at a time

}  // namespace

std::int32_t held_out_tokens(std::int32_t n) {
  const std::int32_t wanted = std::min(n / kPartHeldOut, kMostHeldOut);
  return wanted < kLeastHeldOut ? 0 : wanted;
}

LossSearch::LossSearch(Session::Impl& session, Cut& cut, const HeldOutText& text)
    : session_(session), cut_(cut), text_(text) {}

std::int64_t LossSearch::total(const Budget& budget) const {
  CacheShape shape = session_.shape;
  if (shape.high) shape.high->fraction = high_fraction(budget);
  const auto n = text_.first_position + static_cast<std::int32_t>(text_.tokens.size());
  const std::int64_t all = std::int64_t{n} * shape.n_cut_heads();
  return std::min(budget_entries(budget, shape, n), all);
}

double LossSearch::measure(const Budget& budget) const {
  Engine::Impl& engine = session_.engine_impl();
  const ParallelFor parallel_for = engine.parallel_for();
  Session::Impl fork(session_);
  keep_entries(fork, cut_.narrowed(total(budget), high_fraction(budget), parallel_for), parallel_for);
  fork.cache.truncate(text_.first_position);
  if (text_.reference != nullptr) text_.reference->refit(fork.cache, parallel_for);

  const auto n = static_cast<std::int32_t>(text_.tokens.size());
  fork.cache.extend_all(n, text_.first_position);
  CacheSink sink(fork.cache);
  const ForwardPlan plan{.layers = engine.layers,
                         .tokens = text_.tokens,
                         .first_position = text_.first_position,
                         .n_batch = engine.options.n_batch,
                         .n_converted = text_.first_position + n};
  ForwardPass pass(*engine.executor, engine.model->impl().spec, plan, sink, fork.recurrent, {});
  while (!pass.is_through()) pass.step();

  const auto n_vocab = static_cast<std::size_t>(engine.model->impl().spec.n_vocab);
  const auto n_embd = static_cast<std::size_t>(engine.model->impl().spec.n_embd);
  std::vector<float> full(kRows * n_vocab);
  const std::int32_t n_skipped = n / kPartSkipped;
  double kl = 0;
  pass.read_logits([&](std::int32_t position, std::span<const float> logits) {
    const std::int32_t row = position - text_.first_position;
    if (row % kRows == 0) {
      engine.executor->output_logits(text_.hidden + static_cast<std::size_t>(row) * n_embd, std::min(kRows, n - row),
                                     full.data());
    }
    const std::span<const float> expected(full.data() + static_cast<std::size_t>(row % kRows) * n_vocab, n_vocab);
    if (row >= n_skipped) kl += kl_divergence(expected, log_sum_exp(expected), logits, log_sum_exp(logits));
  });
  // The ranks use rank 0's number: those of different processors may differ in the last digits.
  return engine.pipeline.of_first(kl / (n - n_skipped));
}

LossPromise LossSearch::find() const {
  LossPromise promise{.asked = session_.options.budget->amount,
                      .n_tokens = static_cast<std::int32_t>(text_.tokens.size())};
  for (const double rung : kRungs) {
    const Budget budget{.unit = Budget::Unit::kByteFraction, .amount = rung};
    if (total(budget) < cut_.n_protected()) continue;
    const double kl = measure(budget);
    promise.tried.push_back({budget, kl});
    promise.taken = budget;
    promise.expected = kl;
    if (promise.expected <= promise.asked) return promise;
  }
  throw LossRefusal(ErrorCode::kInvalidArgument,
                    "the method '" + session_.options.eviction.text() + "' cannot cut this prompt within " +
                        session_.options.budget->text() + ": even " + session_.options.budget->most().text() +
                        " may cost " + format_number(std::round(promise.expected * 1e4) / 1e4) +
                        " nats a token; allow more, or give a size");
}

}  // namespace winnow
