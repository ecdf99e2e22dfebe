#include "winnow/cut_shape.h"

#include <algorithm>
#include <numeric>

namespace winnow {

int CutShape::n_cut_layers() const {
  return static_cast<int>(std::count_if(heads.begin(), heads.end(), [](int n) { return n > 0; }));
}

std::int64_t CutShape::n_heads() const { return first_head(n_layer()); }

std::int64_t CutShape::first_head(int layer) const {
  return std::accumulate(heads.begin(), heads.begin() + layer, std::int64_t{0});
}

}  // namespace winnow
