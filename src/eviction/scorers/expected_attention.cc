// expected-attention: the attention that queries yet to come are expected to pay, x the L2 norm of the value.
// Devoto et al., "Expected Attention: KV Cache Compression by Estimating Attention from Future Queries Distribution",
// arXiv 2510.00636:
//   score_i = (softmax_i(mu' k_i / sqrt d + k_i' Sigma k_i / 2d) + ea-eps) * || v_i ||_2, mean over the group
// mu and Sigma are the moments of the prompt's queries before rotation, rotated by the average rotation over the next
// ea-future positions; the first ea-skip queries and keys are left out (those keys get the best score).
#include <algorithm>
#include <cmath>
#include <limits>

#include "eviction/key_rows.h"
#include "eviction/registry.h"
#include "kernels/rows.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// The average of the rotations by the positions n_tokens .. n_tokens + n_future - 1.
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

  // A vector whose components lie `stride` apart.
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
    return {.query_moments = true, .moments_skip = options.ea_skip};
  }
  OptionNames options() const override { return {"ea-eps", "ea-future", "ea-skip"}; }
  bool is_mass() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const LayerView& view = evidence.view();
    if (view.query_mean == nullptr || view.query_covariance == nullptr) {
      throw Error(ErrorCode::kInternal,
                  "expected-attention got no moments of the queries: the engine did not save them");
    }
    const Rotation rotation(view.rotation, view.shape.head_dim, view.n_tokens, options.ea_future);
    LayerScores scores(evidence.n_kv_head());
    evidence.for_each_head([&](int h) { scores[h] = score_head(evidence, options, rotation, h); });
    return scores;
  }

 private:
  static constexpr int kBlock = 16;  // keys

  static std::vector<float> score_head(const LayerEvidence& evidence, const EvictionOptions& options,
                                       const Rotation& rotation, int h) {
    const LayerView& view = evidence.view();
    const int d = view.shape.head_dim;
    const int n = evidence.n_entries(h);
    const std::vector<std::int32_t> positions = evidence.positions(h);
    const auto skipped =
        static_cast<int>(std::lower_bound(positions.begin(), positions.end(), options.ea_skip) - positions.begin());
    std::vector<double> expected(n, 0.0);  // sum over the group of the softmaxes
    std::vector<double> logits(n);
    for (int g = 0; g < evidence.n_group(); ++g) {
      const std::size_t head = std::size_t(h) * evidence.n_group() + g;
      std::vector<double> mean(view.query_mean + head * d, view.query_mean + (head + 1) * d);
      const double* covariance_begin = view.query_covariance + head * d * d;
      std::vector<double> covariance(covariance_begin, covariance_begin + std::size_t(d) * d);
      rotation.apply(mean.data(), 1);
      for (int c = 0; c < d; ++c) rotation.apply(covariance.data() + c, d);                   // the columns
      for (int r = 0; r < d; ++r) rotation.apply(covariance.data() + std::size_t(r) * d, 1);  // the rows
      const double scale = static_cast<double>(view.shape.scale);
      double max = -std::numeric_limits<double>::infinity();
      // Blocks of keys, transposed: the inner loops run over keys and vectorise.
      std::vector<double> keys(std::size_t(d) * kBlock);  // [head_dim][kBlock]
      const auto flush = [&](int first, int count) {
        double dot[kBlock] = {}, square[kBlock] = {};
        for (int r = 0; r < d; ++r) {
          const double* key = keys.data() + std::size_t(r) * kBlock;
          // The covariance is symmetric: what lies left of the diagonal counts twice.
          double product[kBlock] = {};
          for (int c = 0; c < r; ++c) {
            const double twice = 2.0 * covariance[std::size_t(r) * d + c];
            const double* other = keys.data() + std::size_t(c) * kBlock;
            for (int k = 0; k < kBlock; ++k) product[k] += twice * other[k];
          }
          const double diagonal = covariance[std::size_t(r) * d + r];
          for (int k = 0; k < kBlock; ++k) {
            square[k] += (product[k] + diagonal * key[k]) * key[k];
            dot[k] += mean[r] * key[k];
          }
        }
        for (int k = 0; k < count; ++k) {
          logits[first + k] = scale * dot[k] + 0.5 * scale * scale * square[k];
          if (first + k >= skipped) max = std::max(max, logits[first + k]);
        }
      };
      for_each_key(view.shape, view.heads[h], n, [&](std::int32_t i, const float* key) {
        for (int c = 0; c < d; ++c) keys[std::size_t(c) * kBlock + i % kBlock] = static_cast<double>(key[c]);
        if (i % kBlock == kBlock - 1 || i == n - 1) flush(i - i % kBlock, i % kBlock + 1);
      });
      double sum = 0;
      for (int i = skipped; i < n; ++i) sum += logits[i] = std::exp(logits[i] - max);
      for (int i = skipped; i < n; ++i) expected[i] += logits[i] / sum;
    }
    std::vector<float> norms(n);
    kernels::value_l2_norms(view.shape, view.heads[h], norms);
    std::vector<float> scores(evidence.n_prefix(h));
    float best = 0;
    for (int i = skipped; i < evidence.n_prefix(h); ++i) {
      scores[i] = static_cast<float>((expected[i] / evidence.n_group() + options.ea_eps) * norms[i]);
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
