#include "eviction/evidence/head_parts.h"

#include <algorithm>

namespace winnow {

std::vector<HeadPart> cut_heads(const LayerEvidence& evidence, std::int32_t size,
                                const std::function<std::int32_t(int head)>& n_of) {
  std::vector<HeadPart> parts;
  for (int h = 0; h < evidence.n_kv_head(); ++h) {
    const std::int32_t n = n_of(h);
    for (std::int32_t first = 0; first < n; first += size) {
      parts.push_back({.head = h, .first = first, .last = std::min(first + size, n)});
    }
  }
  return parts;
}

}  // namespace winnow
