#include "model/balanced_pairs.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "model/rotation.h"

namespace winnow {
namespace {

// The context in tokens over which a bias's pair turns.
constexpr double kContext = 4096;
// The factors lie between 2^-kMostBits and 2^kMostBits, so that float16 holds keys and queries as well as before.
constexpr double kMostBits = 6;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Returns the mean square of each output of a matrix and its bias over inputs of mean square 1 behind the norm:
// [n_out]. Of the bias's square only the part `of_bias` counts, [key_dim] for each head.
std::vector<double> mean_squares(const LayerWeights& weights, const ggml_tensor* matrix, const ggml_tensor* bias,
                                 const std::vector<double>& of_bias) {
  const auto n_in = static_cast<int>(matrix->ne[0]), n_out = static_cast<int>(matrix->ne[1]);
  const ggml_tensor* norm = weights.attn_norm.weight;
  const float* gains = norm != nullptr ? static_cast<const float*>(norm->data) : nullptr;
  const float* biases = static_cast<const float*>(bias->data);
  std::vector<double> squares(at(n_out));
  std::vector<float> row(at(n_in));
  for (int i = 0; i < n_out; ++i) {
    dequantize_row(matrix, i, row.data());
    double sum = 0;
    for (int j = 0; j < n_in; ++j) {
      const double gain = gains != nullptr ? static_cast<double>(gains[j]) : 1;
      sum += gain * gain * static_cast<double>(row[at(j)]) * static_cast<double>(row[at(j)]);
    }
    const auto b = static_cast<double>(biases[i]);
    squares[at(i)] = sum + b * b * of_bias[at(i) % of_bias.size()];
  }
  return squares;
}

// Returns for each dimension of a head the other one of its pair, or itself if it is not rotated.
std::vector<int> partners(const Rotation& rotation, int key_dim) {
  std::vector<int> other(at(key_dim));
  const int half = rotation.n_dims / 2;
  for (int i = 0; i < key_dim; ++i) {
    if (i >= rotation.n_dims) {
      other[at(i)] = i;
    } else if (rotation.interleaved) {
      other[at(i)] = i ^ 1;
    } else {
      other[at(i)] = i < half ? i + half : i - half;
    }
  }
  return other;
}

// Returns the part of a bias's square that does not lie in the mean over the context, by dimension of a head:
// [key_dim].
std::vector<double> turning_parts(const Rotation& rotation, int key_dim) {
  std::vector<double> parts(at(key_dim), 0.0);
  const int half = rotation.n_dims / 2;
  for (int i = 0; i < rotation.n_dims; ++i) {
    const int pair = rotation.interleaved ? i / 2 : i % half;
    const double turn = kContext * static_cast<double>(rotation.frequency[at(pair)]) / 2;
    const double mean = turn > 0 ? std::sin(turn) / turn : 1;  // of a circle's arc, as a part of the radius
    parts[at(i)] = 1 - mean * mean;
  }
  return parts;
}

}  // namespace

BalancedPairs balanced_pairs(const LayerSpec& spec, const LayerWeights& weights) {
  const bool has_own = spec.owns_entries() && !spec.is_key_value && !spec.has_output_gate && spec.latent_rank == 0;
  if (!has_own || spec.qk_norm != QkNorm::kNone || weights.bk == nullptr || weights.bq == nullptr) return {};
  const int key_dim = spec.key_dim, n_group = spec.n_head / spec.n_kv_head;
  const Rotation rotation = rotation_of(spec.rope, weights);
  const std::vector<int> other = partners(rotation, key_dim);
  const std::vector<double> keys = mean_squares(weights, weights.wk, weights.bk, turning_parts(rotation, key_dim));
  const std::vector<double> queries = mean_squares(weights, weights.wq, weights.bq, {1.0});
  BalancedPairs pairs{.query = std::vector<float>(queries.size()), .key = std::vector<float>(keys.size())};
  for (int h = 0; h < spec.n_kv_head; ++h) {
    std::vector<double> bits(at(key_dim));  // log2 of d
    for (int i = 0; i < key_dim; ++i) {
      double q = 0;
      for (int g = 0; g < n_group; ++g) {
        const std::size_t head = at((h * n_group + g) * key_dim);
        q += queries[head + at(i)] + queries[head + at(other[at(i)])];
      }
      const std::size_t head = at(h * key_dim);
      const double k = keys[head + at(i)] + keys[head + at(other[at(i)])];
      bits[at(i)] = q > 0 && k > 0 ? 0.25 * std::log2(q / n_group / k) : 0;
    }
    // A factor on all of a head's keys changes nothing: most pairs have none.
    std::vector<double> sorted = bits;
    const auto middle = sorted.begin() + key_dim / 2;
    std::nth_element(sorted.begin(), middle, sorted.end());
    for (int i = 0; i < key_dim; ++i) {
      const double rounded = std::round(bits[at(i)] - *middle);
      const auto d = static_cast<float>(std::exp2(std::clamp(rounded, -kMostBits, kMostBits)));
      pairs.key[at(h * key_dim + i)] = d;
      for (int g = 0; g < n_group; ++g) pairs.query[at((h * n_group + g) * key_dim + i)] = 1 / d;
    }
  }
  const bool is_one = std::all_of(pairs.key.begin(), pairs.key.end(), [](float d) { return d == 1; });
  return is_one ? BalancedPairs{} : pairs;
}

}  // namespace winnow
