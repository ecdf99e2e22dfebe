// Tables with a static weight for every KV head of a model, from a file, by which headkv, lu-kv and duo-attention share
// out the budget.
#pragma once

#include <vector>

#include "winnow/api.h"
#include "winnow/cut_shape.h"
#include "winnow/eviction.h"

namespace WINNOW_API winnow {

// A source of static weights. Stateless: the table itself comes with the options.
class HeadTable {
 public:
  virtual ~HeadTable() = default;

  // Returns the weights [heads of all layers that are cut], of which only the proportions count. Throws Error for a
  // table that is missing or has another shape.
  virtual std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const = 0;

  // Returns true if the weights share out all of T, with a head's protected entries as its least share; false if they
  // share out T less the protected entries.
  virtual bool counts_protected() const { return false; }
};

}  // namespace winnow
