#include "cache/cache_shape.h"

#include <algorithm>

namespace winnow {

std::size_t CacheShape::entry_bytes(int layer) const {
  return kernels::entry_bytes(this->layer(layer), key_type_of(layer), value_type_of(layer));
}

std::size_t CacheShape::high_entry_bytes(int layer) const {
  if (!high) return entry_bytes(layer);
  return kernels::entry_bytes(this->layer(layer), high->key_type, high->value_type);
}

int CacheShape::n_heads() const {
  int n = 0;
  for (const LayerShape& layer : layers) n += layer.n_kv_head;
  return n;
}

int CacheShape::n_cut_heads() const {
  int n = 0;
  for (const LayerShape& layer : layers) n += layer.n_evictable_heads();
  return n;
}

CacheShape CacheShape::with_layers(int first, int last) const {
  CacheShape shape = *this;
  for (int l = 0; l < n_layer(); ++l) {
    if (l < first || l >= last) shape.layers[static_cast<std::size_t>(l)].n_kv_head = 0;
  }
  return shape;
}

CacheShape CacheShape::plain() const {
  CacheShape shape = *this;
  shape.key_type = kernels::plain_type(key_type);
  shape.value_type = kernels::plain_type(value_type);
  shape.high.reset();
  shape.later.reset();
  return shape;
}

CacheShape CacheShape::held() const {
  CacheShape shape = *this;
  shape.value_type = kernels::plain_type(value_type);
  if (shape.high) shape.high->value_type = shape.value_type;
  return shape;
}

EntryBytes CacheShape::cut_entry_bytes(std::int64_t n_tokens) const {
  std::size_t stored = 0, high_extra = 0, f16_rows = 0, first = 0;
  for (int l = 0; l < n_layer(); ++l) {
    const LayerShape& sizes = layer(l);
    if (!sizes.is_evictable()) continue;
    const auto n_heads = static_cast<std::size_t>(sizes.n_kv_head);
    stored += n_heads * entry_bytes(l);
    high_extra += n_heads * (high_entry_bytes(l) - entry_bytes(l));
    first += n_heads * (head_bytes(l, kPlainEntries) - kPlainEntries * entry_bytes(l) + origin_bytes(l));
    f16_rows += n_heads * (row_bytes(EntryType::kF16, sizes.key_dim) + row_bytes(EntryType::kF16, sizes.value_dim));
  }
  const double n_heads = std::max(1, n_cut_heads());
  const double high_fraction = high ? high->fraction : 0;
  // Positions ascend over the pages of either kind, so only this many pages of a head can span kOffsets positions.
  const auto n_far_pages = static_cast<std::size_t>((high ? 2 : 1) * (n_tokens / kOffsets));
  return {.stored = (static_cast<double>(stored) + high_fraction * static_cast<double>(high_extra)) / n_heads,
          .f16_rows = static_cast<double>(f16_rows) / n_heads,
          .head_extra = static_cast<double>(first) / n_heads + static_cast<double>(n_far_pages * kFarPositionsBytes)};
}

std::size_t CacheShape::head_bytes(int layer, std::int64_t n) const {
  const std::size_t coded = entry_bytes(layer);
  const std::size_t plain =
      has_codes() && this->layer(layer).sliding_window == 0 ? this->plain().entry_bytes(layer) : coded;
  const std::int64_t n_plain = std::min<std::int64_t>(n, kPlainEntries);
  const std::size_t origin =
      n > kPlainEntries || (n > 0 && this->layer(layer).sliding_window > 0) ? origin_bytes(layer) : 0;
  return static_cast<std::size_t>(n_plain) * plain + static_cast<std::size_t>(n - n_plain) * coded + origin;
}

std::int64_t CacheShape::full_entries(std::int64_t n_tokens) const {
  std::int64_t n = 0;
  for (const LayerShape& layer : layers) {
    n += layer.n_kv_head *
         (layer.sliding_window > 0 ? std::min<std::int64_t>(n_tokens, layer.sliding_window) : n_tokens);
  }
  return n;
}

std::size_t CacheShape::full_bytes(std::int64_t n_tokens) const {
  std::size_t bytes = 0;
  for (int l = 0; l < n_layer(); ++l) {
    if (layer(l).n_kv_head == 0) continue;
    const std::int64_t n =
        layer(l).sliding_window > 0 ? std::min<std::int64_t>(n_tokens, layer(l).sliding_window) : n_tokens;
    bytes += static_cast<std::size_t>(layer(l).n_kv_head) * head_bytes(l, n);
  }
  return bytes;
}

}  // namespace winnow
