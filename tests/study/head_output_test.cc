// The error of a head's output compared with sums in double, and the loss curves computed from it.
#include "study/head_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "eviction/evidence/stored_rows.h"
#include "study/calibrate/refitted_loss.h"
#include "study/tiny_prompt.h"
#include "winnow/observe.h"

namespace winnow {
namespace {

using test::tiny_engine;
using test::tiny_tokens;

constexpr int kContext = 70, kLater = 9, kRows = 7;

// Calls `body` with every layer of a context and the tokens after it, in f32.
void with_layers(const std::function<void(const LayerView&)>& body) {
  const auto engine = tiny_engine();
  SessionOptions options;
  options.key_type = options.value_type = EntryType::kF32;
  Session session = open_observed(*engine, options, {.window_rows = kRows, .output_projection = true});
  session.prefill(tiny_tokens(kContext, 5));
  session.append(tiny_tokens(kLater, 6));
  observe_stored(session, {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor&) { body(view); }});
}

struct Rows {
  std::vector<float> keys, values;  // of the whole head
  std::size_t d;
};

Rows rows_of(const LayerView& view, int h) {
  const kernels::HeadEntries& entries = view.heads[static_cast<std::size_t>(h)];
  return {load_rows(view.shape, entries, kernels::RowKind::kKey, view.n_tokens),
          load_rows(view.shape, entries, kernels::RowKind::kValue, view.n_tokens),
          static_cast<std::size_t>(view.shape.key_dim)};
}

// Returns the rows of the entries in `kept`, times a factor.
std::vector<float> chosen(const std::vector<float>& rows, std::size_t d, const std::vector<int>& kept,
                          float factor = 1) {
  std::vector<float> out;
  for (const int i : kept) {
    for (std::size_t c = 0; c < d; ++c) out.push_back(factor * rows[static_cast<std::size_t>(i) * d + c]);
  }
  return out;
}

// Returns the attention output [value_dim] of row r of query head h, computed in double.
std::vector<double> output(const LayerView& view, int h, int r, const std::vector<float>& keys,
                           const std::vector<float>& values, std::size_t n_seen) {
  const auto d = static_cast<std::size_t>(view.shape.key_dim);
  const float* q =
      view.window_q + (std::ptrdiff_t{view.n_window_rows - kRows + r} * view.n_head + h) * view.shape.key_dim;
  std::vector<double> out(d, 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < n_seen; ++i) {
    double score = 0;
    for (std::size_t c = 0; c < d; ++c) score += double{q[c]} * double{keys[i * d + c]};
    const double weight = std::exp(score * double{view.shape.spec.scale});
    sum += weight;
    for (std::size_t c = 0; c < d; ++c) out[c] += weight * double{values[i * d + c]};
  }
  for (double& x : out) x /= sum;
  return out;
}

double naive_error(const LayerView& view, int kv_head, const Rows& rows, std::vector<float> keys,
                   std::vector<float> values) {
  const std::size_t d = rows.d, n = keys.size() / d;
  keys.insert(keys.end(), rows.keys.begin() + static_cast<std::ptrdiff_t>(kContext * d), rows.keys.end());
  values.insert(values.end(), rows.values.begin() + static_cast<std::ptrdiff_t>(kContext * d), rows.values.end());
  double sum = 0;
  for (int g = 0; g < view.shape.n_group; ++g) {
    const int h = kv_head * view.shape.n_group + g;
    for (int r = 0; r < kRows; ++r) {
      const std::size_t later = kLater - kRows + r + 1;
      const std::vector<double> full = output(view, h, r, rows.keys, rows.values, kContext + later);
      const std::vector<double> cut = output(view, h, r, keys, values, n + later);
      for (int e = 0; e < view.n_embd; ++e) {
        double change = 0;
        for (std::size_t c = 0; c < d; ++c) {
          change += (cut[c] - full[c]) *
                    double{view.w_o[(std::ptrdiff_t{h} * view.shape.value_dim + std::ptrdiff_t(c)) * view.n_embd + e]};
        }
        sum += change * change;
      }
    }
  }
  return sum / kRows;
}

TEST(HeadOutput, TheErrorIsThatOfTheOutput) {
  const std::vector<int> some{0, 3, 4, 20, 33, 34, 60, 69};
  with_layers([&](const LayerView& view) {
    for (int h = 0; h < view.n_kv_head; ++h) {
      const HeadOutput head(view, h, kContext, kRows);
      const Rows rows = rows_of(view, h);
      EXPECT_GT(head.square(), 0);
      EXPECT_NEAR(head.error(kContext, rows.keys.data(), rows.values.data()), 0, 1e-9 * head.square());
      for (const float factor : {1.0F, 1.5F}) {
        const std::vector<float> keys = chosen(rows.keys, rows.d, some);
        const std::vector<float> values = chosen(rows.values, rows.d, some, factor);
        const double expected = naive_error(view, h, rows, keys, values);
        EXPECT_NEAR(head.error(static_cast<std::int32_t>(some.size()), keys.data(), values.data()), expected,
                    1e-4 * expected);
      }
      const double nothing = naive_error(view, h, rows, {}, {});
      EXPECT_NEAR(head.error(0, nullptr, nullptr), nothing, 1e-4 * nothing);
    }
  });
}

// Returns scores of the entries before the window of 3, all of them different.
std::vector<float> scores_of_prefix() {
  std::vector<float> scores(kContext - 3);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>((i * 37) % 67);
  return scores;
}

TEST(RefittedLoss, WithoutReferenceRowsItIsTheErrorOfTheBest) {
  const std::vector<float> scores = scores_of_prefix();
  constexpr int kSinks = 2;
  std::vector<int> order(scores.size() - kSinks);
  std::iota(order.begin(), order.end(), kSinks);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  with_layers([&](const LayerView& view) {
    const Rows rows = rows_of(view, 0);
    const std::vector<double> loss = refitted_loss_curve(view, 0,
                                                         {.n_context = kContext,
                                                          .sinks = kSinks,
                                                          .scores = scores,
                                                          .key_type = EntryType::kF32,
                                                          .value_type = EntryType::kF32},
                                                         {}, kRows);
    ASSERT_EQ(loss.size(), order.size() + 1);
    // The curve has points at 0, 10 and 40 % of the 65 candidates.
    for (const std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{26}}) {
      std::vector<int> kept{0, 1, kContext - 3, kContext - 2, kContext - 1};
      kept.insert(kept.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n));
      const double expected =
          naive_error(view, 0, rows, chosen(rows.keys, rows.d, kept), chosen(rows.values, rows.d, kept));
      EXPECT_LE(loss[n], expected * (1 + 1e-4)) << n;
      if (n == 0) {
        EXPECT_NEAR(loss[n], expected, 1e-4 * expected);
      }
    }
    EXPECT_NEAR(loss.back(), 0, 1e-9 * loss.front());
    for (std::size_t i = 1; i < loss.size(); ++i) EXPECT_LE(loss[i], loss[i - 1] * (1 + 1e-12)) << i;
  });
}

TEST(RefittedLoss, RefittingLowersItAndCodesRaiseItsEnd) {
  const std::vector<float> scores = scores_of_prefix();
  RefittedCut cut{
      .n_context = kContext, .sinks = 2, .scores = scores, .key_type = EntryType::kF32, .value_type = EntryType::kF32};
  double plain = 0, fitted = 0;
  with_layers([&](const LayerView& view) {
    // The reference consists of the rows that the error is measured on, so no other fit could be better.
    const std::ptrdiff_t n = std::ptrdiff_t{view.n_window_rows} * view.n_head * view.shape.key_dim;
    const ReferenceCopy same{view.n_window_rows, {view.window_q, view.window_q + n}};
    for (int h = 0; h < view.n_kv_head; ++h) {
      plain += refitted_loss_curve(view, h, cut, {}, kRows)[7];
      fitted += refitted_loss_curve(view, h, cut, same, kRows)[7];
      RefittedCut coded = cut;
      coded.key_type = coded.value_type = EntryType::kR4;
      const std::vector<double> loss = refitted_loss_curve(view, h, coded, {}, kRows);
      EXPECT_GT(loss.back(), 1e-5 * loss.front());
    }
  });
  EXPECT_LT(fitted, 0.9 * plain);
}

}  // namespace
}  // namespace winnow
