#include "eviction/cut.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "eviction/fine_entries.h"
#include "eviction/registry.h"
#include "eviction/shares.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// One layer that has been scored.
struct ScoredLayer {
  std::optional<LayerRanking> ranking = {};            // gone once the layer's cut is final
  double weight = 0;                                   // of a measured layer allocator
  std::vector<std::int32_t> n_sinks = {};              // [n_kv_head] stored
  std::vector<std::int32_t> n_window = {};             // [n_kv_head] stored
  std::vector<std::int32_t> n_candidates = {};         // [n_kv_head] when the layer was added
  std::vector<std::vector<std::int32_t>> stored = {};  // [n_kv_head] candidates still stored, ascending offsets
  std::vector<std::int64_t> n_fine = {};               // [n_kv_head] stored in more bits
  bool is_new = true;                                  // never cut yet
  bool is_cut = true;                                  // false: a layer that is left alone

  std::int64_t n_protected(int h) const { return std::int64_t{n_sinks[h]} + n_window[h]; }
  std::int64_t n_stored() const {
    std::int64_t n = 0;
    for (std::size_t h = 0; h < stored.size(); ++h) n += n_protected(static_cast<int>(h)) + std::ssize(stored[h]);
    return n;
  }
};

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// Indices, into the entries stored at present, of those that stay when the candidates `chosen` do. Both lists ascend
// and chosen is a part of layer.stored[h].
std::vector<std::int32_t> kept_indices(const ScoredLayer& layer, int h, const std::vector<std::int32_t>& chosen) {
  std::vector<std::int32_t> kept;
  kept.reserve(layer.n_protected(h) + chosen.size());
  const std::vector<std::int32_t>& stored = layer.stored[h];
  for (std::int32_t i = 0; i < layer.n_sinks[h]; ++i) kept.push_back(i);
  auto at = stored.begin();
  for (const std::int32_t candidate : chosen) {
    at = std::lower_bound(at, stored.end(), candidate);
    if (at == stored.end() || *at != candidate) {
      throw Error(ErrorCode::kInternal, "a stage of the cascade dropped an entry that a later one keeps");
    }
    kept.push_back(layer.n_sinks[h] + static_cast<std::int32_t>(at - stored.begin()));
  }
  const auto n_prefix = layer.n_sinks[h] + static_cast<std::int32_t>(stored.size());
  for (std::int32_t i = 0; i < layer.n_window[h]; ++i) kept.push_back(n_prefix + i);
  return kept;
}

// Scores of the sinks and of the candidates `chosen` (ascending).
std::vector<float> kept_scores(const ScoredLayer& layer, int h, const std::vector<std::int32_t>& chosen) {
  const HeadRanking& ranking = layer.ranking->head(h);
  std::vector<float> of_candidate(layer.n_candidates[h]);
  for (std::size_t i = 0; i < ranking.order.size(); ++i) of_candidate[ranking.order[i]] = ranking.scores[i];
  std::vector<float> scores(layer.n_sinks[h]);
  for (const std::int32_t candidate : chosen) scores.push_back(of_candidate[candidate]);
  return scores;
}

}  // namespace

int CutShape::n_cut_layers() const {
  return static_cast<int>(std::count_if(heads.begin(), heads.end(), [](int n) { return n > 0; }));
}

std::int64_t CutShape::n_heads() const { return first_head(n_layer()); }

std::int64_t CutShape::first_head(int layer) const {
  return std::accumulate(heads.begin(), heads.begin() + layer, std::int64_t{0});
}

struct Cut::State {
  EvictionOptions options;
  CutShape shape;
  Parts parts;
  EvidenceNeeds needs;
  bool is_prefill = true;  // layers arrive whole and are cut as they come
  bool is_final = false;   // the last layer has been cut
  std::vector<ScoredLayer> layers;
  CutReport report;

  // Known before the first layer in a prefill: integer budgets of all layers, or of all heads with a joint table.
  std::vector<std::int64_t> layer_budgets;
  std::vector<std::int64_t> joint_budgets;

  std::int64_t n_heads() const { return shape.n_heads(); }
  int n_kv_head(int l) const { return shape.heads[l]; }
  bool is_last() const { return next_layer() == shape.n_layer(); }
  // The next layer that has to be added.
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

  // Whether layers that have been cut may be cut again.
  bool in_cascade() const {
    return is_prefill && shape.fixed_budget.empty() && (parts.layers->is_global() || parts.layers->is_measured());
  }

  std::int32_t whole_protected() const {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(shape.n_tokens, std::int64_t{options.window} + options.sinks));
  }

  // Protected entries and candidates of head (l, h). A layer that is yet to come is whole.
  std::int64_t n_protected(int l, int h) const {
    return l < std::ssize(layers) ? layers[l].n_protected(h) : whole_protected();
  }
  std::int64_t n_candidates(int l, int h) const {
    return l < std::ssize(layers) ? layers[l].n_candidates[h] : shape.n_tokens - whole_protected();
  }

  // A layer's part of numbers for all heads.
  template <class T>
  std::span<const T> of_layer(const std::vector<T>& all, int l) const {
    return std::span(all).subspan(shape.first_head(l), n_kv_head(l));
  }

  std::int64_t layer_candidates(int l) const {
    std::int64_t n = 0;
    for (int h = 0; h < n_kv_head(l); ++h) n += n_candidates(l, h);
    return n;
  }

  // What is shared out: T less the protected entries of all layers, at most all candidates.
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
  std::vector<std::vector<std::int64_t>> stage_ceilings(const ParallelFor& parallel_for);
  std::vector<std::vector<std::int64_t>> global_counts(std::int64_t left, std::int64_t floor) const;
  std::vector<std::vector<std::int64_t>> global_budgets() const;
  std::vector<std::vector<std::int64_t>> fine_budgets(int first_layer,
                                                      const std::vector<std::vector<std::int64_t>>& budgets) const;
  void fill_report(int l, std::vector<double> head_share, const std::vector<std::int64_t>& budget);
  std::vector<std::vector<std::int64_t>> due(const ParallelFor& parallel_for, int& first_layer);
  std::vector<LayerCut> apply(int first_layer, const std::vector<std::vector<std::int64_t>>& budgets,
                              const ParallelFor& parallel_for);
};

void Cut::State::check_shape() const {
  if (!shape.fixed_budget.empty()) {
    if (std::ssize(shape.fixed_budget) != n_heads()) {
      throw Error(ErrorCode::kInternal, "a cut got fixed budgets for another number of heads");
    }
    return;
  }
  if (is_whole()) return;
  const std::int64_t needed = whole_protected() * n_heads();
  if (shape.total >= needed) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the budget of " + std::to_string(shape.total) + " entries is below the " + std::to_string(needed) +
                  " that are always kept (" + std::to_string(options.sinks) + " sinks and a window of " +
                  std::to_string(options.window) + " tokens in each of " + std::to_string(n_heads()) +
                  " heads): raise the budget to at least " + std::to_string(whole_protected()) +
                  " tokens, or lower the window or the sinks");
}

void Cut::State::add(LayerScoring& scoring) {
  LayerEvidence& evidence = scoring.evidence(options);
  const LayerScores& scores = scoring.scores(options);
  ScoredLayer layer;
  layer.ranking.emplace(evidence, scores);
  parts.selector->prepare(evidence, scores, options, *layer.ranking);
  if (parts.layers->is_measured()) layer.weight = parts.layers->measure(evidence, scores, options);
  for (int h = 0; h < evidence.n_kv_head(); ++h) {
    layer.n_sinks.push_back(evidence.n_sinks(h));
    layer.n_window.push_back(evidence.n_entries(h) - evidence.n_prefix(h));
    layer.n_candidates.push_back(evidence.n_candidates(h));
    layer.n_fine.push_back(0);
    layer.stored.emplace_back(evidence.n_candidates(h));
    std::iota(layer.stored.back().begin(), layer.stored.back().end(), 0);
  }
  layers.push_back(std::move(layer));
}

// Real-valued shares of all heads by a static table, protected entries not counted.
std::vector<double> Cut::State::table_shares(const HeadTable& table) const {
  const std::vector<double> weights = table.weights(shape, options);
  std::vector<std::int64_t> floors, caps;
  for (int l = 0; l < shape.n_layer(); ++l) {
    for (int h = 0; h < n_kv_head(l); ++h) {
      const std::int64_t floor = table.counts_protected() ? n_protected(l, h) : 0;
      floors.push_back(floor);
      caps.push_back(floor + n_candidates(l, h));
    }
  }
  std::vector<double> shares = water_fill(weights, floors, caps, shared_total() + sum(floors));
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] -= static_cast<double>(floors[i]);
  return shares;
}

// Of the first n_seen layers, which share the whole total among them.
std::vector<double> Cut::State::layer_shares(int n_seen) const {
  std::vector<double> weights;
  if (parts.layers->is_measured()) {
    for (int l = 0; l < n_seen; ++l) weights.push_back(l < std::ssize(layers) ? layers[l].weight : 0);
  } else if (parts.layers->table() != nullptr) {
    const std::vector<double> shares = table_shares(*parts.layers->table());
    for (int l = 0; l < shape.n_layer(); ++l) {
      const std::span<const double> layer = of_layer(shares, l);
      weights.push_back(std::accumulate(layer.begin(), layer.end(), 0.0));
    }
    return weights;
  } else {
    weights = parts.layers->weights(shape, options);
  }
  std::vector<std::int64_t> caps;
  for (int l = 0; l < n_seen; ++l) caps.push_back(layer_candidates(l));
  return water_fill(weights, caps, std::min(shared_total(), sum(caps)));
}

void Cut::State::allot_joint() {
  const std::vector<double> shares = table_shares(*parts.joint_table());
  joint_budgets = round_shares(shares, shared_total());
  for (int l = 0; l < shape.n_layer(); ++l) {
    const std::span<const double> layer = of_layer(shares, l);
    report.head_share[l].assign(layer.begin(), layer.end());
    report.layer_share[l] = std::accumulate(layer.begin(), layer.end(), 0.0);
  }
}

void Cut::State::allot_layers() {
  report.layer_share = layer_shares(shape.n_layer());
  layer_budgets = round_shares(report.layer_share, shared_total());
}

void Cut::State::fill_report(int l, std::vector<double> head_share, const std::vector<std::int64_t>& budget) {
  if (!head_share.empty()) report.head_share[l] = std::move(head_share);
  report.budget[l].clear();
  for (int h = 0; h < n_kv_head(l); ++h) {
    report.budget[l].push_back(static_cast<std::int32_t>(n_protected(l, h) + budget[h]));
  }
}

// What each head of the layers seen keeps in this stage: what it can still get at most.
std::vector<std::vector<std::int64_t>> Cut::State::stage_ceilings(const ParallelFor& parallel_for) {
  const int n_seen = static_cast<int>(layers.size());
  const std::vector<double> shares = layer_shares(n_seen);
  std::vector<std::vector<std::int64_t>> ceilings(n_seen);
  parallel_for(n_seen, [&](int l) {
    if (!layers[l].is_cut) return;
    const std::int64_t budget = std::min(ceiling(shares[l]), layer_candidates(l));
    HeadRequest request{.budget = budget, .ranking = *layers[l].ranking};
    if (const HeadTable* table = parts.heads->table()) {
      const std::vector<double> weights = table->weights(shape, options);
      const std::span<const double> layer = of_layer(weights, l);
      request.weights.assign(layer.begin(), layer.end());
    }
    ceilings[l] = parts.heads->ceilings(request, options);
  });
  return ceilings;
}

// How many of the best `left` candidates of all layers seen each head has, the best `floor` of each head before all
// others: equal scores go to the later token, then to the lower layer and head.
std::vector<std::vector<std::int64_t>> Cut::State::global_counts(std::int64_t left, std::int64_t floor) const {
  struct Candidate {
    float score;
    std::int32_t position;
    std::int32_t layer, head;
  };
  std::vector<std::vector<std::int64_t>> counts;
  for (std::size_t l = 0; l < layers.size(); ++l) counts.emplace_back(shape.heads[l], 0);
  std::vector<Candidate> candidates;
  for (int l = 0; l < std::ssize(layers); ++l) {
    for (int h = 0; h < n_kv_head(l); ++h) {
      const HeadRanking& ranking = layers[l].ranking->head(h);
      // What a stage left out cannot come back: a head's survivors here are the first of its ranking.
      const std::int64_t n_stored = std::ssize(layers[l].stored[h]);
      counts[l][h] = std::min(floor, n_stored);
      left -= counts[l][h];
      for (std::int64_t i = counts[l][h]; i < n_stored; ++i) {
        candidates.push_back({ranking.scores[i], layers[l].ranking->position(h, ranking.order[i]), l, h});
      }
    }
  }
  const std::int64_t n = std::min<std::int64_t>(left, std::ssize(candidates));
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.position != b.position) return a.position > b.position;
    return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
  };
  if (n < std::ssize(candidates))
    std::nth_element(candidates.begin(), candidates.begin() + n, candidates.end(), better);
  for (std::int64_t i = 0; i < n; ++i) ++counts[candidates[i].layer][candidates[i].head];
  return counts;
}

std::vector<std::vector<std::int64_t>> Cut::State::global_budgets() const {
  // The floor is the same in every stage of the cascade.
  return global_counts(shared_total(), std::min<std::int64_t>(options.integer("floor"), shared_total() / n_heads()));
}

// How many entries of each head are stored in more bits: ranked over the whole model where the method ranks so, else a
// layer's best in each of its heads alike.
std::vector<std::vector<std::int64_t>> Cut::State::fine_budgets(
    int first_layer, const std::vector<std::vector<std::int64_t>>& budgets) const {
  std::vector<std::vector<std::int64_t>> fine;
  std::vector<std::int64_t> kept;
  double n_window = 0, n_kept = 0;
  for (int i = 0; i < std::ssize(budgets); ++i) {
    fine.emplace_back(budgets[i].size(), 0);
    for (int h = 0; h < std::ssize(budgets[i]); ++h) {
      kept.push_back(layers[first_layer + i].n_protected(h) + budgets[i][h]);
      n_window += layers[first_layer + i].n_window[h];
      n_kept += static_cast<double>(kept.back());
    }
  }
  if (shape.fine.part == 0 || budgets.empty()) return fine;
  const bool is_stage = in_cascade() && !is_last();
  if (parts.layers->is_global() && shape.fixed_budget.empty()) {
    const double total = std::min(n_kept, static_cast<double>(shape.total));
    const double wanted = std::max(shape.fine.part * total - n_window, 0.0);
    const std::vector<std::vector<std::int64_t>> best = global_counts(static_cast<std::int64_t>(wanted), 0);
    std::vector<double> weights;
    for (std::size_t l = 0; l < best.size(); ++l) {
      for (std::size_t h = 0; h < best[l].size(); ++h) {
        weights.push_back(static_cast<double>(layers[l].n_window[h] + best[l][h]));
      }
    }
    const std::vector<std::int64_t> counts = fine_counts(shape.fine, total, weights, kept, is_stage);
    auto at = counts.begin();
    for (std::vector<std::int64_t>& layer : fine) {
      for (std::int64_t& n : layer) n = *at++;
    }
    return fine;
  }
  auto at = kept.begin();
  for (std::vector<std::int64_t>& layer : fine) {
    const std::span<const std::int64_t> of_layer(at, layer.size());
    const std::vector<double> weights(of_layer.begin(), of_layer.end());
    layer = fine_counts(shape.fine, std::accumulate(weights.begin(), weights.end(), 0.0), weights, of_layer, is_stage);
    at += std::ssize(layer);
  }
  return fine;
}

// The budgets [layer - first_layer][n_kv_head] that are to be carried out now; empty if none.
std::vector<std::vector<std::int64_t>> Cut::State::due(const ParallelFor& parallel_for, int& first_layer) {
  const int newest = static_cast<int>(layers.size()) - 1;
  first_layer = newest;
  if (!shape.fixed_budget.empty()) {
    std::vector<std::int64_t> budget;
    for (int h = 0; h < n_kv_head(newest); ++h) {
      const std::int64_t fixed = shape.fixed_budget[shape.first_head(newest) + h];
      budget.push_back(std::clamp<std::int64_t>(fixed - n_protected(newest, h), 0, n_candidates(newest, h)));
    }
    fill_report(newest, {budget.begin(), budget.end()}, budget);
    report.layer_share[newest] = static_cast<double>(sum(budget));
    return {budget};
  }
  if (!is_prefill && !is_last()) return {};

  const bool is_global = parts.layers->is_global();
  if (in_cascade() && !is_last()) {
    first_layer = 0;
    return is_global ? global_budgets() : stage_ceilings(parallel_for);
  }
  if (in_cascade() || !is_prefill) first_layer = 0;

  std::vector<std::vector<std::int64_t>> budgets;
  if (is_global) {
    budgets = global_budgets();
    for (int l = 0; l <= newest; ++l) {
      report.layer_share[l] = static_cast<double>(sum(budgets[l]));
      fill_report(l, {budgets[l].begin(), budgets[l].end()}, budgets[l]);
    }
    return budgets;
  }
  const HeadTable* table = parts.heads->table();
  if (parts.joint_table() != nullptr) {
    if (joint_budgets.empty()) allot_joint();
    for (int l = first_layer; l <= newest; ++l) {
      const std::span<const std::int64_t> layer = of_layer(joint_budgets, l);
      budgets.emplace_back(layer.begin(), layer.end());
      fill_report(l, {}, budgets.back());
    }
    return budgets;
  }
  if (layer_budgets.empty()) allot_layers();
  const std::vector<double> weights = table == nullptr ? std::vector<double>{} : table->weights(shape, options);
  budgets.resize(newest + 1 - first_layer);
  parallel_for(static_cast<int>(budgets.size()), [&](int i) {
    const int l = first_layer + i;
    if (!layers[l].is_cut) return;
    HeadRequest request{.budget = layer_budgets[l], .ranking = *layers[l].ranking};
    if (table != nullptr) {
      const std::span<const double> layer = of_layer(weights, l);
      request.weights.assign(layer.begin(), layer.end());
    }
    std::vector<double> shares = parts.heads->shares(request, options);
    budgets[i] = round_shares(shares, layer_budgets[l]);
    fill_report(l, std::move(shares), budgets[i]);
  });
  return budgets;
}

std::vector<LayerCut> Cut::State::apply(int first_layer, const std::vector<std::vector<std::int64_t>>& budgets,
                                        const ParallelFor& parallel_for) {
  std::vector<LayerCut> cuts;
  const std::vector<std::vector<std::int64_t>> fine = fine_budgets(first_layer, budgets);
  struct Item {
    std::size_t cut;
    int head;
  };
  std::vector<Item> items;
  for (int i = 0; i < std::ssize(budgets); ++i) {
    const ScoredLayer& layer = layers[first_layer + i];
    bool is_due = layer.is_new;
    for (int h = 0; h < n_kv_head(first_layer + i); ++h) {
      is_due |= budgets[i][h] != std::ssize(layer.stored[h]) || fine[i][h] != layer.n_fine[h];
    }
    if (!is_due) continue;
    cuts.push_back({.layer = first_layer + i, .kept = {}, .fine = {}});
    cuts.back().kept.resize(n_kv_head(first_layer + i));
    cuts.back().fine.resize(n_kv_head(first_layer + i));
    if (needs.earlier_scores) cuts.back().scores.resize(n_kv_head(first_layer + i));
    for (int h = 0; h < n_kv_head(first_layer + i); ++h) items.push_back({cuts.size() - 1, h});
  }
  parallel_for(static_cast<int>(items.size()), [&](int item) {
    LayerCut& cut = cuts[items[item].cut];
    const int h = items[item].head;
    ScoredLayer& layer = layers[cut.layer];
    const std::int64_t budget = budgets[cut.layer - first_layer][h];
    std::vector<std::int32_t> chosen = budget == std::ssize(layer.stored[h])
                                           ? layer.stored[h]
                                           : parts.selector->select(layer.ranking->head(h), budget, options);
    cut.kept[h] = kept_indices(layer, h, chosen);
    layer.n_fine[h] = fine[cut.layer - first_layer][h];
    cut.fine[h] = fine_entries(shape.fine,
                               {.kept = cut.kept[h],
                                .chosen = chosen,
                                .order = layer.ranking->head(h).order,
                                .n_sinks = layer.n_sinks[h],
                                .n_window = layer.n_window[h]},
                               layer.n_fine[h]);
    if (needs.earlier_scores) cut.scores[h] = kept_scores(layer, h, chosen);
    report.fine[cut.layer][h] = static_cast<std::int32_t>(layer.n_fine[h]);
    layer.stored[h] = std::move(chosen);
  });
  for (const LayerCut& cut : cuts) layers[cut.layer].is_new = false;
  return cuts;
}

Cut::Cut(const EvictionOptions& options, const CutShape& shape)
    : state_(std::make_unique<State>(State{.options = options,
                                           .shape = shape,
                                           .parts = {},
                                           .needs = {},
                                           .layers = {},
                                           .report = {},
                                           .layer_budgets = {},
                                           .joint_budgets = {}})) {
  State& state = *state_;
  state.report.layer_share.assign(shape.n_layer(), 0.0);
  for (const int n_kv_head : shape.heads) {
    state.report.head_share.emplace_back(n_kv_head, 0.0);
    state.report.budget.emplace_back(n_kv_head, shape.n_tokens);
    state.report.fine.emplace_back(n_kv_head, 0);
  }
  if (!options.evicts()) return;
  options.validate();
  state.parts = find_parts(options);
  state.needs = needs(options);
  state.is_prefill = shape.stored == 0;
  state.check_shape();
}

Cut::~Cut() = default;
Cut::Cut(Cut&&) noexcept = default;

EvidenceNeeds Cut::needs(const EvictionOptions& options) {
  EvidenceNeeds needs;
  if (!options.evicts()) return needs;
  const Parts parts = find_parts(options);
  needs |= parts.scorer->needs(options);
  needs |= parts.layers->needs(options);
  needs |= parts.selector->needs(options);
  needs.reference_rows |= options.fit == Fit::kValues;
  return needs;
}

bool Cut::keeps_everything() const { return state_->is_whole(); }

std::vector<LayerCut> Cut::add_layer(const LayerView& view, const ParallelFor& parallel_for) {
  LayerScoring scoring(view, state_->needs.window_columns, parallel_for);
  return add_layer(scoring);
}

std::vector<LayerCut> Cut::add_layer(LayerScoring& scoring) {
  State& state = *state_;
  const LayerView& view = scoring.view();
  const ParallelFor& parallel_for = scoring.parallel_for();
  if (state.is_whole()) return {};
  if (state.is_final || view.layer != state.next_layer() || view.n_kv_head != state.shape.heads[view.layer] ||
      view.n_tokens != state.shape.n_tokens) {
    throw Error(ErrorCode::kInternal,
                "a cut got layer " + std::to_string(view.layer) + " out of order or of another shape");
  }
  if (state.is_prefill && state.shape.fixed_budget.empty()) {
    for (const kernels::HeadEntries& head : view.heads) {
      if (head.n_entries == view.n_tokens) continue;
      if (!state.layers.empty()) throw Error(ErrorCode::kInternal, "a cut of a ragged cache was taken for a prefill");
      state.is_prefill = false;
    }
  }
  while (std::ssize(state.layers) < view.layer) {
    ScoredLayer& alone = state.layers.emplace_back();
    alone.is_new = alone.is_cut = false;
  }
  state.add(scoring);
  int first_layer = 0;
  const std::vector<std::vector<std::int64_t>> budgets = state.due(parallel_for, first_layer);
  std::vector<LayerCut> cuts = state.apply(first_layer, budgets, parallel_for);
  std::int64_t n_stored = 0;
  for (const ScoredLayer& layer : state.layers) n_stored += layer.n_stored();
  state.report.stage_stored.push_back(n_stored);
  state.is_final = state.is_last();
  for (ScoredLayer& layer : state.layers) {
    if (state.is_final || (!layer.is_new && !state.in_cascade())) layer.ranking.reset();
  }
  return cuts;
}

const CutReport& Cut::report() const { return state_->report; }

}  // namespace winnow
