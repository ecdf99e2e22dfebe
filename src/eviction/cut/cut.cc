#include "eviction/cut/cut.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "eviction/cut/cut_state.h"
#include "eviction/cut/high_entries.h"
#include "eviction/cut/part_answers.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the indices, into the entries stored at present, of those that stay if the candidates `chosen` do. Both lists
// ascend, and `chosen` is a subset of layer.stored[h].
std::vector<std::int32_t> kept_indices(const ScoredLayer& layer, int h, const std::vector<std::int32_t>& chosen) {
  std::vector<std::int32_t> kept;
  kept.reserve(layer.n_protected(h) + chosen.size());
  const std::vector<std::int32_t>& stored = layer.stored[h];
  for (std::int32_t i = 0; i < layer.n_sinks[h]; ++i) kept.push_back(i);
  auto at = stored.begin();
  for (const std::int32_t candidate : chosen) {
    at = std::find(at, stored.end(), candidate);
    if (at == stored.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a stage of the cascade dropped an entry that a later one keeps: a selector must keep with a larger "
                  "budget all that it keeps with a smaller one, and an allocator's stages must not grow");
    }
    kept.push_back(layer.n_sinks[h] + static_cast<std::int32_t>(at - stored.begin()));
  }
  const auto n_prefix = layer.n_sinks[h] + static_cast<std::int32_t>(stored.size());
  for (std::int32_t i = 0; i < layer.n_window[h]; ++i) kept.push_back(n_prefix + i);
  return kept;
}

// Returns the scores of the sinks and of the candidates `chosen` (ascending).
std::vector<float> kept_scores(const ScoredLayer& layer, int h, const std::vector<std::int32_t>& chosen) {
  const HeadRanking& ranking = layer.ranking->head(h);
  std::vector<float> of_candidate(layer.n_candidates[h]);
  for (std::size_t i = 0; i < ranking.order.size(); ++i) of_candidate[ranking.order[i]] = ranking.scores[i];
  std::vector<float> scores(layer.n_sinks[h]);
  for (const std::int32_t candidate : chosen) scores.push_back(of_candidate[candidate]);
  return scores;
}

// Returns whether a layer's entries, or what they are stored in, would change.
bool is_due(const ScoredLayer& layer, const std::vector<std::int64_t>& budget,
            const std::vector<std::int64_t>& n_high) {
  bool is_due = layer.is_new;
  for (std::size_t h = 0; h < budget.size(); ++h) {
    is_due |= budget[h] != std::ssize(layer.stored[h]) || n_high[h] != layer.n_high[h];
  }
  return is_due;
}

}  // namespace

void Cut::State::check_shape() const {
  if (!shape.fixed_budget.empty()) {
    if (std::ssize(shape.fixed_budget) != n_heads()) {
      throw Error(ErrorCode::kInternal, "a cut got fixed budgets for the wrong number of heads");
    }
    return;
  }
  if (is_whole()) return;
  const std::int64_t needed = whole_protected() * n_heads();
  if (shape.total >= needed) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the budget of " + std::to_string(shape.total) + " entries is below the " + std::to_string(needed) +
                  " that are always kept of the prompt's " + std::to_string(shape.n_tokens) + " tokens (up to " +
                  std::to_string(options.sinks) + " sinks and a window of " + std::to_string(options.window) +
                  " in each of " + std::to_string(n_heads()) + " heads): raise the budget to at least " +
                  std::to_string(whole_protected()) +
                  " tokens a head, give a longer prompt, or lower the window or the sinks");
}

void Cut::State::add(LayerScoring& scoring) {
  LayerEvidence& evidence = scoring.evidence(options);
  const LayerScores& scores = scoring.scores(options);
  ScoredLayer layer;
  layer.ranking.emplace(evidence, scores);
  parts.selector->prepare(evidence, scores, options, *layer.ranking);
  if (parts.layers->is_measured()) {
    layer.weight = parts.layers->measure(evidence, scores, options);
    check_weights("the layer allocator '" + options.layers + "'", std::span(&layer.weight, 1), 1);
  }
  for (int h = 0; h < evidence.n_kv_head(); ++h) {
    layer.n_sinks.push_back(evidence.n_sinks(h));
    layer.n_window.push_back(evidence.n_entries(h) - evidence.n_prefix(h));
    layer.n_candidates.push_back(evidence.n_candidates(h));
    layer.n_high.push_back(0);
    layer.stored.emplace_back(evidence.n_candidates(h));
    std::iota(layer.stored.back().begin(), layer.stored.back().end(), 0);
  }
  layers.push_back(std::move(layer));
}

void Cut::State::cut_head(LayerCut& cut, int h, std::int64_t budget, std::int64_t n_high) {
  ScoredLayer& layer = layers[cut.layer];
  std::vector<std::int32_t> chosen;
  if (budget == std::ssize(layer.stored[h])) {
    chosen = layer.stored[h];
  } else {
    chosen = parts.selector->select(layer.ranking->head(h), budget, options);
    check_chosen(options.selector, chosen, budget, layer.n_candidates[h]);
  }
  cut.kept[h] = kept_indices(layer, h, chosen);
  cut.high[h] = high_entries(shape.high,
                             {.kept = cut.kept[h],
                              .chosen = chosen,
                              .order = layer.ranking->head(h).order,
                              .n_sinks = layer.n_sinks[h],
                              .n_window = layer.n_window[h]},
                             n_high);
  if (needs.earlier_scores) cut.scores[h] = kept_scores(layer, h, chosen);
  report.high[cut.layer][h] = static_cast<std::int32_t>(n_high);
  layer.n_high[h] = n_high;
  layer.stored[h] = std::move(chosen);
}

std::vector<LayerCut> Cut::State::apply(const HeadCounts& budgets, const ParallelFor& parallel_for) {
  const HeadCounts high = high_budgets(budgets);
  std::vector<LayerCut> cuts;
  struct Item {
    std::size_t cut;
    int head;
  };
  std::vector<Item> items;
  for (int l = budgets.first_layer(); l < budgets.end_layer(); ++l) {
    ScoredLayer& layer = layers[l];
    if (layer.is_elsewhere) {
      layer.is_new = false;
      if (!parts.layers->is_global() || !shape.fixed_budget.empty()) continue;
      for (int h = 0; h < n_kv_head(l); ++h) layer.stored[h].resize(budgets[l][h]);
      layer.n_high = high[l];
      continue;
    }
    if (!is_due(layer, budgets[l], high[l])) continue;
    LayerCut& cut = cuts.emplace_back(LayerCut{.layer = l, .kept = {}, .high = {}});
    cut.kept.resize(n_kv_head(l));
    cut.high.resize(n_kv_head(l));
    if (needs.earlier_scores) cut.scores.resize(n_kv_head(l));
    for (int h = 0; h < n_kv_head(l); ++h) items.push_back({cuts.size() - 1, h});
  }
  parallel_for(static_cast<int>(items.size()), [&](int i) {
    const int h = items[i].head;
    LayerCut& cut = cuts[items[i].cut];
    cut_head(cut, h, budgets[cut.layer][h], high[cut.layer][h]);
  });
  for (const LayerCut& cut : cuts) layers[cut.layer].is_new = false;
  return cuts;
}

// Returns the cuts that are due once a layer has been added.
std::vector<LayerCut> Cut::State::cut_due(const ParallelFor& parallel_for) {
  newest_high.clear();
  std::vector<LayerCut> cuts = apply(due(parallel_for), parallel_for);
  std::int64_t n_stored = 0;
  for (const ScoredLayer& layer : layers) n_stored += layer.n_stored();
  report.stage_stored.push_back(n_stored);
  is_final = is_last();
  if (send_summary && !layers.back().is_elsewhere) send_summary(summary_of_newest());
  for (ScoredLayer& layer : layers) {
    if (narrows || (!is_final && (layer.is_new || in_cascade()))) continue;
    layer.ranking.reset();
    layer.ranked.clear();
  }
  return cuts;
}

Cut::Cut(const EvictionOptions& options, const CutShape& shape, SummarySink send_summary)
    : state_(std::make_unique<State>(State{.options = options,
                                           .shape = shape,
                                           .parts = {},
                                           .needs = {},
                                           .send_summary = std::move(send_summary),
                                           .layers = {},
                                           .report = {},
                                           .layer_budgets = {},
                                           .joint_budgets = {}})) {
  State& state = *state_;
  state.report.layer_share.assign(shape.n_layer(), 0.0);
  for (const int n_kv_head : shape.heads) {
    state.report.head_share.emplace_back(n_kv_head, 0.0);
    state.report.budget.emplace_back(n_kv_head, shape.n_tokens);
    state.report.high.emplace_back(n_kv_head, 0);
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

// Other methods would choose by what they are measured on: auto-fast held two promises of four, snapkv one
// (docs/results.md).
void check_loss_is_measurable(const EvictionOptions& method, const Budget& budget) {
  if (budget.unit != Budget::Unit::kLoss || Cut::needs(method).repeats_prompt()) return;
  throw Error(ErrorCode::kUnsupported,
              "the budget " + budget.text() + " is measured on the prompt's last tokens, but the method '" +
                  method.text() + "' may choose what it keeps by these tokens, since it makes no second pass over " +
                  "the prompt: use auto or kvzip, or give a size");
}

bool Cut::keeps_everything() const { return state_->is_whole(); }

std::vector<LayerCut> Cut::add_layer(const LayerView& view, const ParallelFor& parallel_for) {
  LayerScoring scoring(view, state_->needs.window_columns, parallel_for);
  return add_layer(scoring);
}

std::vector<LayerCut> Cut::add_layer(LayerScoring& scoring) {
  State& state = *state_;
  const LayerView& view = scoring.layer();
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
    alone.is_new = alone.is_evictable = false;
  }
  state.add(scoring);
  return state.cut_due(parallel_for);
}

std::vector<LayerCut> Cut::add_remote_layer(int layer, std::span<const std::byte> summary,
                                            const ParallelFor& parallel_for) {
  State& state = *state_;
  if (state.is_whole()) return {};
  if (state.is_final || layer != state.next_layer()) {
    throw Error(ErrorCode::kInternal, "a cut was told of layer " + std::to_string(layer) + " out of order");
  }
  while (std::ssize(state.layers) < layer) {
    ScoredLayer& alone = state.layers.emplace_back();
    alone.is_new = alone.is_evictable = false;
  }
  state.read_layer(summary);
  return state.cut_due(parallel_for);
}

void Cut::allow_narrowing() { state_->narrows = true; }

std::int64_t Cut::n_protected() const {
  const State& state = *state_;
  std::int64_t n = 0;
  for (int l = 0; l < state.shape.n_layer(); ++l) {
    for (int h = 0; h < state.n_kv_head(l); ++h) n += state.n_protected(l, h);
  }
  return n;
}

// Puts back, at the end of a scope, what due() and apply() change of a cut.
class Cut::State::Trial {
 public:
  explicit Trial(State& state) : state_(state), report_(state.report), shape_(state.shape) {
    for (const ScoredLayer& layer : state.layers) stored_.push_back({layer.stored, layer.n_high});
  }
  ~Trial() {
    for (std::size_t l = 0; l < stored_.size(); ++l) {
      state_.layers[l].stored = std::move(stored_[l].candidates);
      state_.layers[l].n_high = std::move(stored_[l].n_high);
    }
    std::swap(state_.report, report_);
    std::swap(state_.shape, shape_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  struct Stored {
    std::vector<std::vector<std::int32_t>> candidates;
    std::vector<std::int64_t> n_high;
  };
  State& state_;
  std::vector<Stored> stored_;  // [n_layer]
  CutReport report_;
  CutShape shape_;
};

std::vector<LayerCut> Cut::narrowed(std::int64_t total, double high_fraction, const ParallelFor& parallel_for) {
  State& state = *state_;
  if (!state.narrows || !state.is_final) throw Error(ErrorCode::kInternal, "a cut was narrowed before its last layer");
  const State::Trial trial(state);
  state.shape.total = total;
  state.shape.high.fraction = high_fraction;
  state.layer_budgets.clear();
  state.joint_budgets.clear();
  HeadCounts budgets = state.due(parallel_for);
  for (int l = budgets.first_layer(); l < budgets.end_layer(); ++l) {
    // A rounded share may grow by one although its budget shrinks.
    for (std::size_t h = 0; h < budgets[l].size(); ++h) {
      budgets[l][h] = std::min(budgets[l][h], std::ssize(state.layers[l].stored[h]));
    }
  }
  return state.apply(budgets, parallel_for);
}

const CutReport& Cut::report() const { return state_->report; }

}  // namespace winnow
