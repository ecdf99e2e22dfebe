// expected-attention: the expected attention of future queries, x the L2 norm of the value.
#include <algorithm>
#include <cmath>

#include "eviction/options/registry.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// The average of the rotations by the positions n_tokens, ..., n_tokens + n_future - 1.
class Rotation {
 public:
  Rotation(const RotationView& view, int head_dim, std::int32_t n_tokens, int n_future)
      : interleaved_(view.interleaved), n_pairs_(std::min(view.n_dims, head_dim) / 2) {
    for (int i = 0; i < n_pairs_; ++i) {
      double cosine = 0, sine = 0;
      for (int p = 0; p < n_future; ++p) {
        const double angle = (static_cast<double>(n_tokens) + p) * static_cast<double>(view.frequency[i]);
        cosine += std::cos(angle);
        sine += std::sin(angle);
      }
      const double factor = static_cast<double>(view.magnitude) / n_future;
      cosine_.push_back(cosine * factor);
      sine_.push_back(sine * factor);
    }
  }

  // Rotates a vector whose components lie `stride` apart.
  void apply(double* x, int stride) const {
    for (int i = 0; i < n_pairs_; ++i) {
      double& a = x[std::ptrdiff_t{interleaved_ ? 2 * i : i} * stride];
      double& b = x[std::ptrdiff_t{interleaved_ ? 2 * i + 1 : i + n_pairs_} * stride];
      const double rotated = a * cosine_[i] - b * sine_[i];
      b = a * sine_[i] + b * cosine_[i];
      a = rotated;
    }
  }

 private:
  bool interleaved_;
  int n_pairs_;
  std::vector<double> cosine_, sine_;  // [n_pairs]
};

class ExpectedAttention final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    return {.query_moments = true, .moments_skip = skip(options)};
  }
  std::vector<Option> options() const override {
    constexpr int kMaxFuture = 65536;  // the cost grows with the positions
    return {number_option("ea-eps", 0, kMaxNumberOption, 0.0, "added to the expected attention"),
            integer_option("ea-future", 1, kMaxFuture, 512, "next positions that the rotation is averaged over"),
            integer_option("ea-skip", 0, kMaxIntegerOption, 4, "first queries and keys left out")};
  }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const LayerView& view = evidence.layer();
    if (view.query_mean == nullptr || view.query_covariance == nullptr) {
      throw Error(ErrorCode::kInternal,
                  "expected-attention got no moments of the queries: the engine did not save them");
    }
    const Rotation rotation(view.rotation, view.shape.key_dim, view.n_tokens,
                            static_cast<int>(options.integer("ea-future")));
    const std::vector<std::vector<double>> logits = expected_scores(evidence, rotation);
    LayerScores scores(evidence.n_kv_head());
    const std::vector<std::vector<float>>& value_norms = evidence.value_l2_norms();
    evidence.for_each_head([&](int h) { scores[h] = score_head(evidence, options, logits[h], value_norms[h], h); });
    return scores;
  }

 private:
  static int skip(const EvictionOptions& options) { return static_cast<int>(options.integer("ea-skip")); }

  // Returns the expected scores from the moments after rotation: [n_kv_head][n_group * n_entries].
  static std::vector<std::vector<double>> expected_scores(const LayerEvidence& evidence, const Rotation& rotation) {
    const LayerView& view = evidence.layer();
    const int d = view.shape.key_dim;
    const std::size_t n_head = view.n_head;
    std::vector<double> mean(view.query_mean, view.query_mean + n_head * d);
    std::vector<double> covariance(view.query_covariance, view.query_covariance + n_head * d * d);
    evidence.parallel(view.n_head, [&](int h) {
      rotation.apply(mean.data() + std::ptrdiff_t{h} * d, 1);
      double* matrix = covariance.data() + std::ptrdiff_t{h} * d * d;
      for (int c = 0; c < d; ++c) rotation.apply(matrix + c, d);                   // the columns
      for (int r = 0; r < d; ++r) rotation.apply(matrix + std::size_t(r) * d, 1);  // the rows
    });
    return evidence.expected_scores(mean, covariance);
  }

  static std::vector<float> score_head(const LayerEvidence& evidence, const EvictionOptions& options,
                                       std::vector<double> logits, const std::vector<float>& value_norms, int h) {
    const int n = evidence.n_entries(h);
    const std::vector<std::int32_t> positions = evidence.positions(h);
    const auto skipped =
        static_cast<int>(std::lower_bound(positions.begin(), positions.end(), skip(options)) - positions.begin());
    const std::size_t n_group = evidence.n_group();
    std::vector<double> expected(n, 0.0);  // sum over the group of the softmaxes
    for (std::size_t g = 0; g < n_group && skipped < n; ++g) {
      double* row = logits.data() + g * n;
      const double max = *std::max_element(row + skipped, row + n);
      double sum = 0;
      for (int i = skipped; i < n; ++i) sum += row[i] = std::exp(row[i] - max);
      for (int i = skipped; i < n; ++i) expected[i] += row[i] / sum;
    }
    std::vector<float> scores(evidence.n_prefix(h));
    const double eps = options.number("ea-eps");
    float best = 0;
    for (int i = skipped; i < evidence.n_prefix(h); ++i) {
      scores[i] = static_cast<float>((expected[i] / evidence.n_group() + eps) * value_norms[i]);
      best = std::max(best, scores[i]);
    }
    std::fill(scores.begin(), scores.begin() + std::min(skipped, evidence.n_prefix(h)), best);
    return scores;
  }
};

}  // namespace

const Scorer& expected_attention_scorer() {
  static const ExpectedAttention instance;
  return instance;
}

}  // namespace winnow
