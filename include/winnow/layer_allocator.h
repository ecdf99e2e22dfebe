// The interface of layer allocators, which share the total of entries among the layers.
#pragma once

#include <algorithm>
#include <vector>

#include "winnow/api.h"
#include "winnow/cut_shape.h"
#include "winnow/head_table.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// Returns weights of layers [n_layer] from weights of a head: of_head(i) of the i-th layer that is cut, times the
// layer's KV heads as a fraction of the most that any layer has. Layers that are not cut weigh 0.
template <class OfHead>
std::vector<double> by_heads(const CutShape& shape, const OfHead& of_head) {
  const int most = *std::max_element(shape.heads.begin(), shape.heads.end());
  std::vector<double> weights;
  int i = 0;
  for (const int n : shape.heads) weights.push_back(n == 0 ? 0.0 : of_head(i++) * n / most);
  return weights;
}

// A layer allocator. Stateless: there is one instance per process, and it may be used from any thread. It is one of
// four kinds:
//  - fixed: weights() are known before the first layer;
//  - measured (is_measured): measure() gives a layer's weight from its evidence, and layers share in cascade: the
//  layers
//    so far share the whole total, and are cut again as later ones join;
//  - by table (table): a static number per head, shared out over all heads at once if the head allocator reads the same
//    table;
//  - global (is_global): there are no shares, and the best scores of the whole model stay.
class LayerAllocator {
 public:
  virtual ~LayerAllocator() = default;
  // Returns the evidence that measure() reads.
  virtual EvidenceNeeds needs(const EvictionOptions&) const { return {}; }
  // Returns the options that the allocator reads.
  virtual std::vector<Option> options() const { return {}; }

  // Returns the shortest observation window with which measure() works.
  virtual int least_window(const EvictionOptions&) const { return 0; }
  // Returns true if measure() needs scores that are never negative (Scorer::is_non_negative).
  virtual bool needs_non_negative_scores() const { return false; }

  // Returns the fixed weights of the layers: [n_layer].
  virtual std::vector<double> weights(const CutShape&, const EvictionOptions&) const { return {}; }

  virtual bool is_measured() const { return false; }
  // Returns the measured weight of one layer, 0 or more.
  virtual double measure(LayerEvidence&, const LayerScores&, const EvictionOptions&) const { return 0; }

  // Returns the table of static weights that the allocator reads, or null.
  virtual const HeadTable* table() const { return nullptr; }

  // Returns true for the allocator of a global ranking, which goes only with the head allocator of the same kind.
  virtual bool is_global() const { return false; }
};

}  // namespace winnow
