// The state of a cut while layers arrive: the scored layers, the entries that are stored of each, and the budgets so
// far. Private to cut.cc, cut_budgets.cc and cut_summary.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "eviction/cut/cut.h"
#include "eviction/options/registry.h"
#include "winnow/ranking.h"

namespace winnow {

// A candidate in a ranking over several layers.
struct RankedCandidate {
  float score;
  std::int32_t position;
};

// A number of entries for each head [n_kv_head] of consecutive layers, by the layers' own numbers.
class HeadCounts {
 public:
  explicit HeadCounts(int first_layer) : first_layer_(first_layer) {}
  // Has a zero for each head of the layers that n_kv_head numbers.
  HeadCounts(int first_layer, std::span<const int> n_kv_head) : first_layer_(first_layer) {
    for (const int n : n_kv_head) layers_.emplace_back(n);
  }

  int first_layer() const { return first_layer_; }
  int end_layer() const { return first_layer_ + static_cast<int>(layers_.size()); }
  bool empty() const { return layers_.empty(); }
  std::vector<std::int64_t>& operator[](int l) { return layers_[static_cast<std::size_t>(l - first_layer_)]; }
  const std::vector<std::int64_t>& operator[](int l) const {
    return layers_[static_cast<std::size_t>(l - first_layer_)];
  }
  // Adds the counts of the next layer.
  void add(std::vector<std::int64_t> counts) { layers_.push_back(std::move(counts)); }

 private:
  int first_layer_;
  std::vector<std::vector<std::int64_t>> layers_;
};

// One layer that has been scored.
struct ScoredLayer {
  std::optional<LayerRanking> ranking = {};            // gone once the layer's cut is final
  double weight = 0;                                   // the measure of a measured layer allocator
  std::vector<std::int32_t> n_sinks = {};              // [n_kv_head] sinks that are stored
  std::vector<std::int32_t> n_window = {};             // [n_kv_head] window entries that are stored
  std::vector<std::int32_t> n_candidates = {};         // [n_kv_head] candidates when the layer was added
  std::vector<std::vector<std::int32_t>> stored = {};  // [n_kv_head] candidates still stored, ascending offsets
  std::vector<std::int64_t> n_high = {};               // [n_kv_head] entries stored in more bits
  bool is_new = true;                                  // the layer was never cut yet
  bool is_elsewhere = false;                           // another machine holds the layer
  // [n_kv_head] candidates that may stay in another machine's layer, best first; only in a global ranking.
  std::vector<std::vector<RankedCandidate>> ranked = {};
  bool is_evictable = true;  // false: a layer that is never cut

  // Returns the candidate of rank i of head h.
  RankedCandidate candidate(int h, std::int64_t i) const {
    if (is_elsewhere) return ranked[h][i];
    const HeadRanking& head = ranking->head(h);
    return {head.scores[i], ranking->position(h, head.order[i])};
  }
  std::int64_t n_protected(int h) const { return std::int64_t{n_sinks[h]} + n_window[h]; }
  std::int64_t n_stored() const {
    std::int64_t n = 0;
    for (std::size_t h = 0; h < stored.size(); ++h) n += n_protected(static_cast<int>(h)) + std::ssize(stored[h]);
    return n;
  }
};

// The state of a cut.
struct Cut::State {
  class Trial;

  EvictionOptions options;
  CutShape shape;
  Parts parts;
  EvidenceNeeds needs;
  SummarySink send_summary;  // null where one machine makes the cut
  bool is_prefill = true;    // layers arrive whole and are cut as they arrive
  bool is_final = false;     // the last layer has been cut
  bool narrows = false;      // rankings are kept after the last layer (allow_narrowing)
  std::vector<ScoredLayer> layers;
  CutReport report;
  std::vector<std::int64_t> newest_high = {};  // [n_kv_head] the newest layer's entries among the best of all layers

  // Integer budgets of all layers, or of all heads with a joint table; known before the first layer in a prefill.
  std::vector<std::int64_t> layer_budgets;
  std::vector<std::int64_t> joint_budgets;

  std::int64_t n_heads() const { return shape.n_heads(); }
  int n_kv_head(int l) const { return shape.heads[l]; }
  bool is_last() const { return next_layer() == shape.n_layer(); }
  // Returns the next layer that has to be added.
  int next_layer() const {
    int l = static_cast<int>(layers.size());
    while (l < shape.n_layer() && shape.heads[l] == 0) ++l;
    return l;
  }
  bool is_whole() const {
    if (!options.evicts()) return true;
    if (!shape.fixed_budget.empty()) return false;
    return (shape.stored > 0 ? shape.stored : shape.n_tokens * n_heads()) <= shape.total;
  }

  // Returns true if layers that have been cut may be cut again.
  bool in_cascade() const {
    return is_prefill && shape.fixed_budget.empty() && (parts.layers->is_global() || parts.layers->is_measured());
  }

  std::int32_t whole_protected() const {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(shape.n_tokens, std::int64_t{options.window} + options.sinks));
  }

  // Return the number of protected entries and of candidates of head (l, h). A layer that was not added yet counts as
  // whole.
  std::int64_t n_protected(int l, int h) const {
    return l < std::ssize(layers) ? layers[l].n_protected(h) : whole_protected();
  }
  std::int64_t n_candidates(int l, int h) const {
    return l < std::ssize(layers) ? layers[l].n_candidates[h] : shape.n_tokens - whole_protected();
  }

  // Returns a layer's part [n_kv_head] of numbers for all heads.
  template <class T>
  std::span<const T> of_layer(const std::vector<T>& all, int l) const {
    return std::span(all).subspan(shape.first_head(l), n_kv_head(l));
  }

  std::int64_t layer_candidates(int l) const {
    std::int64_t n = 0;
    for (int h = 0; h < n_kv_head(l); ++h) n += n_candidates(l, h);
    return n;
  }

  // Returns the entries to share out: T minus the protected entries of all layers, at most all candidates.
  std::int64_t shared_total() const {
    std::int64_t total = shape.total, candidates = 0;
    for (int l = 0; l < shape.n_layer(); ++l) {
      for (int h = 0; h < n_kv_head(l); ++h) total -= n_protected(l, h);
      candidates += layer_candidates(l);
    }
    return std::clamp<std::int64_t>(total, 0, candidates);
  }

  void check_shape() const;
  void add(LayerScoring& scoring);
  std::vector<double> table_shares(const HeadTable& table) const;
  std::vector<double> layer_shares(int n_seen) const;
  void allot_joint();
  void allot_layers();
  HeadCounts no_counts(int first_layer, int end_layer) const;
  std::vector<double> head_weights() const;
  HeadRequest head_request(int l, std::int64_t budget, const std::vector<double>& weights);
  HeadCounts stage_ceilings(const ParallelFor& parallel_for);
  HeadCounts global_counts(std::int64_t left, std::int64_t floor) const;
  HeadCounts global_budgets() const;
  HeadCounts high_budgets(const HeadCounts& budgets);
  void fill_report(int l, std::vector<double> head_share, const std::vector<std::int64_t>& budget);
  HeadCounts fixed_budgets();
  HeadCounts joint_head_budgets(int first_layer);
  HeadCounts layered_budgets(int first_layer, const ParallelFor& parallel_for);
  HeadCounts due(const ParallelFor& parallel_for);
  std::vector<LayerCut> cut_due(const ParallelFor& parallel_for);
  std::vector<std::byte> summary_of_newest() const;
  void read_layer(std::span<const std::byte> summary);
  void cut_head(LayerCut& cut, int h, std::int64_t budget, std::int64_t n_high);
  std::vector<LayerCut> apply(const HeadCounts& budgets, const ParallelFor& parallel_for);
};

}  // namespace winnow
