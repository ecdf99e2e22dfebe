// How the total is shared among the layers.
#pragma once

#include <algorithm>
#include <vector>

#include "winnow/api.h"
#include "winnow/cut_shape.h"
#include "winnow/head_table.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// Weights of layers from weights of a head: of_head(i) of the i-th layer that is cut, times its number of heads in
// parts of the largest.
template <class OfHead>
std::vector<double> by_heads(const CutShape& shape, const OfHead& of_head) {
  const int most = *std::max_element(shape.heads.begin(), shape.heads.end());
  std::vector<double> weights;
  int i = 0;
  for (const int n : shape.heads) weights.push_back(n == 0 ? 0.0 : of_head(i++) * n / most);
  return weights;
}

// Stateless; one instance per process, safe to use from any thread. An allocator is one of three kinds:
//  - fixed: weights() are known before the first layer;
//  - measured: a layer's weight comes from its evidence, and layers share in cascade;
//  - by table: a static number per head, shared out over all heads at once if the head allocator reads the same table.
class LayerAllocator {
 public:
  virtual ~LayerAllocator() = default;
  virtual EvidenceNeeds needs(const EvictionOptions&) const { return {}; }
  virtual std::vector<Option> options() const { return {}; }

  // The shortest window with which it can measure.
  virtual int least_window(const EvictionOptions&) const { return 0; }
  // Whether scores must not be negative.
  virtual bool needs_mass() const { return false; }

  virtual std::vector<double> weights(const CutShape&, const EvictionOptions&) const { return {}; }  // [n_layer]

  virtual bool is_measured() const { return false; }
  virtual double measure(LayerEvidence&, const LayerScores&, const EvictionOptions&) const { return 0; }

  virtual const HeadTable* table() const { return nullptr; }

  // No shares at all: the best scores of the whole model.
  virtual bool is_global() const { return false; }
};

}  // namespace winnow
