#include "eviction/evidence/own_keys.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/stored_rows.h"

namespace winnow {
namespace {

double norm_of(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(sum);
}

double length(const float* x, int n) {
  const double norm = norm_of(x, n);
  return std::isnan(norm) ? norm : std::max(norm, kTinyLength);
}

// Calls f(i, key) for each of a head's keys, as the model makes them: less LayerView::key_scales, [key_dim] or null.
template <class Function>
void for_each_key(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, const float* scales,
                  const Function& f) {
  std::vector<float> own(static_cast<std::size_t>(scales != nullptr ? shape.key_dim : 0));
  for_each_row(shape, entries, kernels::RowKind::kKey, entries.n_entries, [&](std::int32_t i, const float* key) {
    if (scales == nullptr) return f(i, key);
    std::transform(key, key + shape.key_dim, scales, own.begin(), std::divides<>());
    f(i, static_cast<const float*>(own.data()));
  });
}

}  // namespace

void own_key_norms(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, const float* scales,
                   std::span<float> out) {
  for_each_key(shape, entries, scales, [&](std::int32_t i, const float* key) {
    out[static_cast<std::size_t>(i)] = static_cast<float>(norm_of(key, shape.key_dim));
  });
}

void cosines_to_mean_key(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, const float* scales,
                         std::span<float> out) {
  const int d = shape.key_dim;
  std::vector<double> mean(static_cast<std::size_t>(d), 0.0);  // up to a factor
  for_each_key(shape, entries, scales, [&](std::int32_t, const float* key) {
    const double norm = length(key, d);
    for (int c = 0; c < d; ++c) mean[static_cast<std::size_t>(c)] += static_cast<double>(key[c]) / norm;
  });
  double mean_norm = 0;
  for (const double m : mean) mean_norm += m * m;
  mean_norm = std::max(std::sqrt(mean_norm), kTinyLength);
  for_each_key(shape, entries, scales, [&](std::int32_t i, const float* key) {
    double dot = 0;
    for (int c = 0; c < d; ++c) dot += static_cast<double>(key[c]) * mean[static_cast<std::size_t>(c)];
    out[static_cast<std::size_t>(i)] = static_cast<float>(dot / (length(key, d) * mean_norm));
  });
}

}  // namespace winnow
