// Scorers compared with the direct computation from the whole attention matrix.
#include <gtest/gtest.h>

#include "eviction/options/registry.h"
#include "eviction/random_cache.h"
#include "normal_numbers.h"

namespace winnow {
namespace {

using testing::RandomCache;
using testing::serial;

constexpr int kTokens = 45;

// The causal attention weights A[h][j][i] in double precision, and the rows' log-sum-exps in h2o's layout.
struct Matrix {
  std::vector<std::vector<std::vector<double>>> a;  // [n_head][n_tokens][n_tokens]
  std::vector<float> log_sum_exp;                   // [n_tokens][n_head]

  explicit Matrix(const RandomCache& cache) : log_sum_exp(std::size_t(cache.n_tokens) * cache.n_head()) {
    const int d = cache.head_dim, n = cache.n_tokens;
    a.assign(cache.n_head(), std::vector<std::vector<double>>(n, std::vector<double>(n, 0.0)));
    for (int h = 0; h < cache.n_head(); ++h) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int i = 0; i <= j; ++i) {
          double dot = 0;
          for (int c = 0; c < d; ++c) {
            dot += static_cast<double>(cache.queries[0][(std::size_t(j) * cache.n_head() + h) * d + c]) *
                   static_cast<double>(cache.keys[0][(std::size_t(h / cache.n_group) * n + i) * d + c]);
          }
          sum += a[h][j][i] = std::exp(dot / std::sqrt(static_cast<double>(d)));
        }
        for (double& x : a[h][j]) x /= sum;
        log_sum_exp[std::size_t(j) * cache.n_head() + h] = static_cast<float>(std::log(sum));
      }
    }
  }
};

LayerScores score(const RandomCache& cache, const std::string& method, const Matrix* matrix = nullptr) {
  const EvictionOptions options = EvictionOptions::parse(method);
  const EvidenceNeeds needs = Cut::needs(options);
  LayerScores scores;
  cache.with_view(0, needs, [&](const LayerView& given) {
    LayerView view = given;
    if (matrix != nullptr) {
      view.n_query_rows = cache.n_tokens;
      view.all_q = cache.queries[0].data();
      view.log_sum_exp = matrix->log_sum_exp.data();
    }
    LayerEvidence evidence(view, options, needs.window_columns, serial());
    scores = find_scorer(options.scorer).score(evidence, options);
  });
  return scores;
}

void expect_near(const LayerScores& scores, const std::function<double(int head, int i)>& expected, int n_prefix) {
  for (std::size_t h = 0; h < scores.size(); ++h) {
    ASSERT_EQ(std::ssize(scores[h]), n_prefix);
    for (int i = 0; i < n_prefix; ++i) {
      const double value = expected(static_cast<int>(h), i);
      ASSERT_NEAR(scores[h][i], value, 1e-5 * std::fabs(value) + 1e-7) << "head " << h << " token " << i;
    }
  }
}

TEST(Scorers, SnapKvCakeAndTovaReduceTheWindow) {
  const RandomCache cache(1, 2, 3, 16, kTokens, 1, 1);
  const Matrix matrix(cache);
  const int w = 6, n_prefix = kTokens - w;
  const auto group_mean = [&](int head, const std::function<double(int query_head)>& of) {
    return (of(3 * head) + of(3 * head + 1) + of(3 * head + 2)) / 3;
  };
  const auto mean = [&](int h, int i) {
    double sum = 0;
    for (int j = n_prefix; j < kTokens; ++j) sum += matrix.a[h][j][i];
    return sum / w;
  };
  const auto variance = [&](int h, int i) {
    double sum = 0;
    for (int j = n_prefix; j < kTokens; ++j) sum += std::pow(matrix.a[h][j][i] - mean(h, i), 2);
    return sum / (w - 1);
  };
  expect_near(
      score(cache, "snapkv:window=6,pool=none"),
      [&](int head, int i) { return group_mean(head, [&](int h) { return mean(h, i); }); }, n_prefix);
  expect_near(
      score(cache, "snapkv:window=6,pool=none,rows=sum"),
      [&](int head, int i) { return group_mean(head, [&](int h) { return w * mean(h, i); }); }, n_prefix);
  expect_near(
      score(cache, "snapkv:window=6,kernel=3"),
      [&](int head, int i) {
        return group_mean(head, [&](int h) {
          return std::max({mean(h, i), i > 0 ? mean(h, i - 1) : 0.0, i + 1 < n_prefix ? mean(h, i + 1) : 0.0});
        });
      },
      n_prefix);
  expect_near(
      score(cache, "cake:window=6,pool=none,gamma=7"),
      [&](int head, int i) { return group_mean(head, [&](int h) { return mean(h, i) + 7 * variance(h, i); }); },
      n_prefix);
  expect_near(
      score(cache, "tova:window=6"),
      [&](int, int i) {
        double sum = 0;
        for (int h = 0; h < 6; ++h) sum += matrix.a[h][kTokens - 1][i];
        return sum / 6;
      },
      n_prefix);
}

TEST(Scorers, H2oSumsTheWholeMatrixOrItsLastRows) {
  const RandomCache cache(1, 2, 2, 16, kTokens, 2, 1);
  const Matrix matrix(cache);
  for (const int rows : {kTokens, 1, 9, 30}) {  // with more rows than the window, they start among the scored tokens
    const auto expected = [&](int head, int i) {
      double sum = 0;
      for (int j = kTokens - rows; j < kTokens; ++j) sum += matrix.a[2 * head][j][i] + matrix.a[2 * head + 1][j][i];
      return sum / 2;
    };
    const std::string last_rows = std::string("h2o:window=6,last-rows=").append(std::to_string(rows));
    expect_near(score(cache, rows == kTokens ? "h2o:window=6" : last_rows, &matrix), expected, kTokens - 6);
  }
}

// Rows that an earlier cut has dropped in some head do not count: it is not known what they saw.
TEST(Scorers, H2oCountsTheRowsThatAllHeadsHaveStored) {
  RandomCache cache(1, 2, 2, 16, kTokens, 2);
  std::erase_if(cache.stored[0][0], [](std::int32_t p) { return p >= 10 && p < kTokens - 8; });
  std::erase_if(cache.stored[0][1], [](std::int32_t p) { return p == 3 || p == kTokens - 10; });
  EXPECT_EQ(score(cache, "h2o:window=6,last-rows=20"), score(cache, "h2o:window=6,last-rows=8"));
  EXPECT_NE(score(cache, "h2o:window=6,last-rows=8"), score(cache, "h2o:window=6,last-rows=7"));
}

TEST(Scorers, KeyScorersReadTheKeysAlone) {
  RandomCache cache(1, 1, 1, 4, 3, 3);
  cache.keys[0] = {3, 0, 0, 0, /**/ 0, 2, 0, 0, /**/ 1, 0, 0, 0};
  expect_near(
      score(cache, "knorm:window=1"), [](int, int i) { return i == 0 ? -3.0 : -2.0; }, 2);
  // The mean of the normalised keys points to (2, 1).
  expect_near(
      score(cache, "keydiff:window=1"), [](int, int i) { return (i == 0 ? -2 : -1) / std::sqrt(5.0); }, 2);
}

// A pass's attention counts where its rows look up what they repeat, by position, whatever entries were evicted before.
// kvzip+ divides it by the norm of the row's residual stream, and multiplies it by that of the projected value.
void expect_kvzip_scores(bool is_plus) {
  constexpr int kAll = 1000, kDim = 8, kGroup = 2;
  RandomCache cache(1, 2, kGroup, kDim, kAll, 3);
  std::erase_if(cache.stored[0][1], [](std::int32_t position) { return position % 3 == 1; });
  const std::vector<float> log_sum_exp(std::size_t{kAll} * 2 * kGroup, 12.0F);
  std::vector<float> input_norm(kAll);
  for (int i = 0; i < kAll; ++i) input_norm[i] = static_cast<float>(1 + i % 3);
  std::vector<ReconstructionPass> passes;
  for (const auto& [first, n] : {std::pair{0, 40}, {300, 60}, {700, 200}}) {
    passes.push_back({.n_rows = n,
                      .q = cache.queries[0].data() + std::ptrdiff_t{first} * 2 * kGroup * kDim,
                      .log_sum_exp = log_sum_exp.data(),
                      .input_norm = input_norm.data(),
                      .near_first = std::max(first - 100, 0),
                      .near_end = first + n + 100});
  }
  const auto projected_norm = [&](int head, int position) {
    const float* value = cache.values[0].data() + (std::ptrdiff_t{head / kGroup} * kAll + position) * kDim;
    const float* w_o = cache.w_o[0].data() + std::ptrdiff_t{head} * kDim * cache.n_embd;
    double square = 0;
    for (int e = 0; e < cache.n_embd; ++e) {
      double number = 0;
      for (int c = 0; c < kDim; ++c) {
        number += static_cast<double>(value[c]) * static_cast<double>(w_o[c * cache.n_embd + e]);
      }
      square += number * number;
    }
    return std::sqrt(square);
  };
  const EvictionOptions options = EvictionOptions::parse("kvzip:window=5");
  cache.with_view(0, {}, [&](const LayerView& given) {
    LayerView view = given;
    view.passes = passes;
    LayerEvidence evidence(view, options, 0, serial());
    const LayerScores scores = find_scorer(is_plus ? "kvzip+" : "kvzip").score(evidence, options);
    for (int h = 0; h < 2; ++h) {
      const std::vector<std::int32_t>& positions = cache.stored[0][h];
      ASSERT_EQ(std::ssize(scores[h]), std::ranges::lower_bound(positions, kAll - 5) - positions.begin());
      for (std::size_t i = 0; i < scores[h].size(); ++i) {
        const double norms[kGroup] = {is_plus ? projected_norm(h * kGroup, positions[i]) : 1,
                                      is_plus ? projected_norm(h * kGroup + 1, positions[i]) : 1};
        double expected = 0;
        for (const ReconstructionPass& pass : passes) {
          if (positions[i] < pass.near_first || positions[i] >= pass.near_end) continue;
          for (int row = 0; row < pass.n_rows * kGroup; ++row) {
            const float* q = pass.q + (std::ptrdiff_t{row / kGroup} * 2 * kGroup + h * kGroup + row % kGroup) * kDim;
            const float* k = cache.keys[0].data() + (std::ptrdiff_t{h} * kAll + positions[i]) * kDim;
            const double factor =
                is_plus ? norms[row % kGroup] / static_cast<double>(pass.input_norm[row / kGroup]) : 1;
            expected = std::max(
                expected, factor * std::exp(std::inner_product(q, q + kDim, k, 0.0) / std::sqrt(kDim * 1.0) - 12));
          }
        }
        ASSERT_NEAR(scores[h][i], expected, 1e-5 * expected) << "head " << h << " position " << positions[i];
      }
    }
  });
}

TEST(Scorers, KvZipLooksNearThePasssTokens) { expect_kvzip_scores(false); }

TEST(Scorers, KvZipPlusTakesTheNormsOfRowsAndValues) { expect_kvzip_scores(true); }

// All heads are measured in parts, a single one as a whole.
TEST(Scorers, ExpectedScoresOfAllHeadsAreThoseOfEach) {
  constexpr int kDim = 8, kGroup = 2;
  RandomCache cache(1, 2, kGroup, kDim, 2500, 5);
  std::erase_if(cache.stored[0][1], [](std::int32_t position) { return position % 3 == 1; });
  const std::size_t n_mean = kGroup * kDim, n_covariance = n_mean * kDim;
  const std::vector<float> drawn = test::normal_numbers(2 * (n_mean + n_covariance), 6);
  const std::vector<double> mean(drawn.begin(), drawn.begin() + 2 * n_mean);
  std::vector<double> covariance(drawn.begin() + 2 * n_mean, drawn.end());
  for (std::size_t first = 0; first < covariance.size(); first += kDim * kDim) {
    for (int i = 0; i < kDim; ++i) {
      for (int j = 0; j < i; ++j) covariance[first + j * kDim + i] = covariance[first + i * kDim + j];
    }
  }
  const EvictionOptions options = EvictionOptions::parse("expected-attention");
  cache.with_view(0, {}, [&](const LayerView& view) {
    const LayerEvidence evidence(view, options, 0, serial());
    const std::vector<std::vector<double>> scores = evidence.expected_scores(mean, covariance);
    ASSERT_EQ(scores.size(), 2U);
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(scores[h], evidence.expected_scores(h, std::span(mean).subspan(h * n_mean, n_mean),
                                                    std::span(covariance).subspan(h * n_covariance, n_covariance)));
    }
  });
}

TEST(Scorers, ExpectedAttentionOfCertainQueriesIsAttention) {
  // Without covariance and rotation the expected attention is the softmax of the mean query's scores.
  const RandomCache cache(1, 1, 2, 8, kTokens, 4);
  const EvictionOptions options = EvictionOptions::parse("expected-attention:window=5,sinks=0,ea-skip=0");
  std::vector<double> mean(2 * 8), covariance(2 * 8 * 8, 0.0);
  for (std::size_t c = 0; c < mean.size(); ++c) mean[c] = 0.1 * static_cast<double>(c) - 0.5;
  std::vector<double> expected(kTokens, 0.0);
  for (int g = 0; g < 2; ++g) {
    std::vector<double> weights;
    for (int i = 0; i < kTokens; ++i) {
      double dot = 0;
      for (int c = 0; c < 8; ++c) dot += mean[g * 8 + c] * static_cast<double>(cache.keys[0][i * 8 + c]);
      weights.push_back(std::exp(dot / std::sqrt(8.0)));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (int i = 0; i < kTokens; ++i) expected[i] += weights[i] / sum / 2;
  }
  for (int i = 0; i < kTokens; ++i) {
    double square = 0;
    for (int c = 0; c < 8; ++c) square += std::pow(static_cast<double>(cache.values[0][i * 8 + c]), 2);
    expected[i] *= std::sqrt(square);
  }
  cache.with_view(0, {}, [&](const LayerView& given) {
    LayerView view = given;
    view.query_mean = mean.data();
    view.query_covariance = covariance.data();
    LayerEvidence evidence(view, options, 0, serial());
    expect_near(
        find_scorer("expected-attention").score(evidence, options), [&](int, int i) { return expected[i]; },
        kTokens - 5);
  });
}

}  // namespace
}  // namespace winnow
