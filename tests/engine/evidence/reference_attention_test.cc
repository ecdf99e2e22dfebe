// The recorded attention of reference rows.
#include "engine/evidence/reference_attention.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_test_support.h"
#include "winnow/layer_evidence.h"
#include "winnow/observe.h"

namespace winnow::test {
namespace {

// One recording serves the choice of what a late repeat sees, which needs the log-sum-exps, and the values that are
// refitted to the outputs later.
TEST(ReferenceAttention, IsRecordedOnceALayer) {
  constexpr int kTokens = 300;
  const auto engine = small_engine();
  Session session = engine->open(full_options());
  Engine::Impl& impl = session.impl().engine_impl();
  ReferenceAttention attention(impl.model->impl().spec, impl.layers, kTokens, impl.pool);
  EvidenceNeeds needs;
  needs.reference_rows = true;
  int n_layers = 0;
  prefill_observed(session, random_tokens(kTokens, 300, 5),
                   {.needs = needs, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                      const auto log_sum_exps = [&](const LayerView& recorded) {
                        return std::vector(recorded.reference_log_sum_exp,
                                           recorded.reference_log_sum_exp + view.n_reference_rows * view.n_head);
                      };
                      LayerView first = view, again = view;
                      attention.add_layer(first, parallel_for);
                      const std::vector<float> recorded = log_sum_exps(first);
                      LayerEvidence with(first, EvictionOptions{}, 0, parallel_for);
                      LayerEvidence without(view, EvictionOptions{}, 0, parallel_for);
                      for (std::size_t h = 0; h < with.reference_rms().size(); ++h) {
                        const std::vector<float>& a = with.reference_rms()[h];
                        const std::vector<float>& b = without.reference_rms()[h];
                        ASSERT_EQ(a.size(), b.size());
                        for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5F + 1e-3F * b[i]) << i;
                      }
                      const ParallelFor none = [](int, const std::function<void(int)>&) { FAIL() << "works again"; };
                      attention.add_layer(again, none);
                      EXPECT_EQ(log_sum_exps(again), recorded);
                      ++n_layers;
                    }});
  EXPECT_EQ(n_layers, kSmallModel.n_layer);
}

}  // namespace
}  // namespace winnow::test
