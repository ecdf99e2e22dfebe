// A static weight for every head of the model, from a file: what headkv and lu-kv allot by.
#pragma once

#include <vector>

#include "winnow/api.h"
#include "winnow/cut_shape.h"
#include "winnow/eviction.h"

namespace WINNOW_API winnow {

class HeadTable {
 public:
  virtual ~HeadTable() = default;

  // [heads of all layers that are cut]; only their proportions count. Throws Error for a missing or wrong-shaped table.
  virtual std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const = 0;

  // Whether the weights share out all of T, the protected entries being a head's floor, instead of T less those.
  virtual bool counts_protected() const { return false; }
};

}  // namespace winnow
