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

// Returns the number of each dimension's pair, by dimension of a head; those that are not rotated have one each.
std::vector<int> pairs_of(const Rotation& rotation, int key_dim) {
  std::vector<int> pairs(at(key_dim));
  const int half = rotation.n_dims / 2;
  for (int i = 0; i < key_dim; ++i) {
    const bool is_rotated = i < rotation.n_dims;
    pairs[at(i)] = !is_rotated ? i - half : rotation.interleaved ? i / 2 : i % half;
  }
  return pairs;
}

// Returns the part of a bias's square that does not lie in the mean over the context, by dimension of a head:
// [key_dim].
std::vector<double> turning_parts(const Rotation& rotation, const std::vector<int>& pairs) {
  std::vector<double> parts(pairs.size(), 0.0);
  for (int i = 0; i < rotation.n_dims; ++i) {
    const double turn = kContext * static_cast<double>(rotation.frequency[at(pairs[at(i)])]) / 2;
    const double mean = turn > 0 ? std::sin(turn) / turn : 1;  // of a circle's arc, as a part of the radius
    parts[at(i)] = 1 - mean * mean;
  }
  return parts;
}

}  // namespace

bool has_balanced_pairs(const LayerSpec& spec, const LayerWeights& weights) {
  const bool has_own = spec.owns_entries() && !spec.is_key_value && !spec.has_output_gate && spec.latent_rank == 0;
  const bool is_scaled = weights.scales.wq != nullptr || weights.scales.wk != nullptr;
  return has_own && spec.qk_norm == QkNorm::kNone && weights.bk != nullptr && weights.bq != nullptr && !is_scaled;
}

BalancedPairs balanced_pairs(const LayerSpec& spec, const LayerWeights& weights) {
  if (!has_balanced_pairs(spec, weights)) return {};
  const int key_dim = spec.key_dim, n_group = spec.n_head / spec.n_kv_head;
  const Rotation rotation = rotation_of(spec.rope, weights);
  const std::vector<int> pair = pairs_of(rotation, key_dim);
  const std::vector<double> keys = mean_squares(weights, weights.wk, weights.bk, turning_parts(rotation, pair));
  const std::vector<double> queries = mean_squares(weights, weights.wq, weights.bq, {1.0});
  BalancedPairs pairs{.query = std::vector<float>(queries.size()), .key = std::vector<float>(keys.size())};
  for (int h = 0; h < spec.n_kv_head; ++h) {
    std::vector<double> of_keys(at(key_dim)), of_queries(at(key_dim));  // by pair
    for (int i = 0; i < key_dim; ++i) {
      of_keys[at(pair[at(i)])] += keys[at(h * key_dim + i)];
      for (int g = 0; g < n_group; ++g) {
        of_queries[at(pair[at(i)])] += queries[at((h * n_group + g) * key_dim + i)] / n_group;
      }
    }
    std::vector<double> bits(at(key_dim));  // log2 of d
    for (int i = 0; i < key_dim; ++i) {
      const double q = of_queries[at(pair[at(i)])], k = of_keys[at(pair[at(i)])];
      bits[at(i)] = q > 0 && k > 0 ? 0.25 * std::log2(q / k) : 0;
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
