// Work on the entries of all heads of a layer, cut so that all threads have some: there may be more threads than heads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "winnow/layer_evidence.h"

namespace winnow {

// A work item: entries [first, last) of a KV head.
struct HeadPart {
  int head;
  std::int32_t first;
  std::int32_t last;
};

// Returns the first n_of(head) entries of every KV head, in parts of `size`. The parts, and what is summed over them,
// do not depend on the number of threads.
std::vector<HeadPart> cut_heads(const LayerEvidence& evidence, std::int32_t size,
                                const std::function<std::int32_t(int head)>& n_of);

}  // namespace winnow
