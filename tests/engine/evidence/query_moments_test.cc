// The means of queries that engines record while layers with and without recording, and passes of several sessions,
// take turns in the same buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/engine_test_support.h"
#include "winnow/observe.h"

namespace winnow::test {
namespace {

// Returns the mean [key_dim] of a head's queries, taken back to position 0.
std::vector<double> mean_unrotated(const LayerView& view, int head) {
  const auto dim = static_cast<std::size_t>(view.shape.key_dim),
             n_half = static_cast<std::size_t>(view.rotation.n_dims / 2);
  std::vector<double> mean(dim);
  for (std::size_t r = 0; r < static_cast<std::size_t>(view.n_query_rows); ++r) {
    const float* q = view.all_q + (r * static_cast<std::size_t>(view.n_head) + static_cast<std::size_t>(head)) * dim;
    std::vector<double> row(q, q + dim);
    for (std::size_t i = 0; i < n_half; ++i) {
      const double angle = view.rotation.frequency[i] * static_cast<double>(r);
      const std::size_t a = view.rotation.interleaved ? 2 * i : i, b = view.rotation.interleaved ? a + 1 : i + n_half;
      row[a] = q[a] * std::cos(angle) + q[b] * std::sin(angle);
      row[b] = q[b] * std::cos(angle) - q[a] * std::sin(angle);
    }
    for (std::size_t i = 0; i < dim; ++i) mean[i] += row[i] / view.n_query_rows;
  }
  return mean;
}

TEST(QueryMoments, AreThoseOfTheQueriesInEveryLayer) {
  const std::vector<Token> prompt = random_tokens(100, 300, 7);
  for (const auto& [architecture, window] : {std::pair{"llama", 0}, std::pair{"gemma2", 40}}) {
    const auto engine =
        Engine::create(tiny_model({.architecture = architecture, .n_layer = 4, .sliding_window = window}),
                       {.n_threads = 1, .n_batch = 48, .prefill_weights = PrefillWeights::kAsIs});
    const auto check = [&] {
      int n_layers = 0;
      Session session = engine->open(full_options());
      EvidenceNeeds needs;
      needs.all_queries = needs.query_moments = true;
      prefill_observed(session, prompt, {.needs = needs, .on_layer = [&](const LayerView& view, const ParallelFor&) {
                                           ++n_layers;
                                           for (int h = 0; h < view.n_head; ++h) {
                                             const std::vector<double> expected = mean_unrotated(view, h);
                                             const double* found = view.query_mean + h * view.shape.key_dim;
                                             for (std::size_t i = 0; i < expected.size(); ++i) {
                                               ASSERT_NEAR(found[i], expected[i], 1e-4) << "layer " << view.layer;
                                             }
                                           }
                                         }});
      EXPECT_GT(n_layers, 0);
    };
    SCOPED_TRACE(architecture);
    check();
    Session cancelled = engine->open(full_options());
    int n_more = 3;
    expect_error(ErrorCode::kCancelled, [&] {
      cancelled.prefill(prompt, {.on_progress = [&](std::int64_t, std::int64_t) { return n_more-- > 0; }});
    });
    check();
  }
}

TEST(QueryMoments, AreNotChangedByAPassThatTakesTurns) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(200, 300, 8), other_prompt = random_tokens(200, 300, 9);
  const SessionOptions options = evicting_options("expected-attention", "20%");
  Session alone = engine->open(options);
  alone.prefill(prompt);
  Session beside = engine->open(options), other = engine->open(full_options());
  Session *const evicting[] = {&beside}, *const whole[] = {&other};
  Prefill first = engine->start_prefill(whole, other_prompt), second = engine->start_prefill(evicting, prompt);
  for (bool more = true; more;) {
    const bool is_first_under_way = first.step();
    more = second.step() || is_first_under_way;
  }
  EXPECT_EQ(kept_positions(beside), kept_positions(alone));
}

TEST(QueryMoments, AreThoseOfTheMethodBesideAnObserver) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(200, 300, 8);
  const SessionOptions options = evicting_options("expected-attention", "20%");
  Session alone = engine->open(options);
  alone.prefill(prompt);
  EvidenceNeeds needs;
  needs.moments_skip = 90;
  Session observed = open_observed(*engine, options, needs);
  observed.prefill(prompt);
  EXPECT_EQ(kept_positions(observed), kept_positions(alone));
  needs.query_moments = true;
  expect_error(ErrorCode::kInvalidArgument, [&] { open_observed(*engine, options, needs); });
}

}  // namespace
}  // namespace winnow::test
