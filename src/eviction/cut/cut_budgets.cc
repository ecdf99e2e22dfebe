// A cut's sharing of its total: among layers, among their heads, and between the entries in more bits and the others.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "eviction/cut/cut_state.h"
#include "eviction/cut/high_entries.h"
#include "eviction/cut/part_answers.h"
#include "eviction/cut/shares.h"

namespace winnow {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// A part of one head's ranking, best first: the candidates first to last - 1.
struct RankedHead {
  int layer, head;
  std::int64_t first, last;

  std::int64_t n() const { return last - first; }
};

// Selects the n best candidates over all heads, or all of them if there are fewer. On return `first` is one past a
// head's last selected candidate. Equal scores go to the later token, then to the lower layer and head. This is a
// quickselect over sorted lists: a round drops half of the longest one, which it finds by binary search.
std::vector<RankedHead> best_of_heads(const std::vector<ScoredLayer>& layers, std::vector<RankedHead> heads,
                                      std::int64_t n) {
  const auto at = [&](const RankedHead& head, std::int64_t i) { return layers[head.layer].candidate(head.head, i); };
  while (true) {
    std::int64_t n_open = 0;  // candidates that are neither taken nor left out
    for (const RankedHead& head : heads) n_open += head.n();
    if (n_open <= n) {
      for (RankedHead& head : heads) head.first = head.last;
      return heads;
    }
    if (n == 0) return heads;
    // The middle of the largest part: each round leaves at most half of it.
    const auto is_smaller = [](const RankedHead& a, const RankedHead& b) { return a.n() < b.n(); };
    const auto largest =
        static_cast<std::size_t>(std::max_element(heads.begin(), heads.end(), is_smaller) - heads.begin());
    const RankedHead pivot = heads[largest];
    const std::int64_t middle = pivot.first + pivot.n() / 2;
    const RankedCandidate median = at(pivot, middle);
    std::vector<std::int64_t> ends;  // per head, the end of the candidates no worse than the pivot
    std::int64_t n_better = 0;
    for (const RankedHead& head : heads) {
      const auto is_no_worse = [&](std::int64_t i) {
        const RankedCandidate candidate = at(head, i);
        if (candidate.score != median.score) return candidate.score > median.score;
        if (candidate.position != median.position) return candidate.position > median.position;
        if (head.layer != pivot.layer) return head.layer < pivot.layer;
        return head.head != pivot.head ? head.head < pivot.head : i <= middle;
      };
      const auto range = std::views::iota(head.first, head.last);
      ends.push_back(*std::ranges::partition_point(range, is_no_worse));
      n_better += ends.back() - head.first;
    }
    const bool are_taken = n_better <= n;
    for (std::size_t i = 0; i < heads.size(); ++i) (are_taken ? heads[i].first : heads[i].last) = ends[i];
    if (are_taken) {
      n -= n_better;
    } else {
      heads[largest].last = middle;  // the pivot is the worst of these, which are too many
    }
  }
}

}  // namespace

// Returns the real-valued shares of all heads by a static table, without protected entries.
std::vector<double> Cut::State::table_shares(const HeadTable& table) const {
  const std::vector<double> weights = table.weights(shape, options);
  check_weights("the table of '" + options.layers + "'", weights, static_cast<std::size_t>(n_heads()));
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

// Returns the shares of the first n_seen layers, which share the whole total among them.
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
    check_weights("the layer allocator '" + options.layers + "'", weights, shape.heads.size());
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

// Returns a zero for each head of the layers from first_layer up to end_layer.
HeadCounts Cut::State::no_counts(int first_layer, int end_layer) const {
  return {first_layer, std::span(shape.heads).subspan(first_layer, end_layer - first_layer)};
}

// Returns the weights of all heads by the head allocator's table; empty if it has none.
std::vector<double> Cut::State::head_weights() const {
  const HeadTable* table = parts.heads->table();
  if (table == nullptr) return {};
  std::vector<double> weights = table->weights(shape, options);
  check_weights("the table of '" + options.heads + "'", weights, static_cast<std::size_t>(n_heads()));
  return weights;
}

// weights: head_weights()
HeadRequest Cut::State::head_request(int l, std::int64_t budget, const std::vector<double>& weights) {
  HeadRequest request{.budget = budget, .ranking = *layers[l].ranking};
  if (weights.empty()) return request;
  const std::span<const double> layer = of_layer(weights, l);
  request.weights.assign(layer.begin(), layer.end());
  return request;
}

// Returns the candidates that each head of the layers seen keeps in this stage: the most that it can still get.
HeadCounts Cut::State::stage_ceilings(const ParallelFor& parallel_for) {
  const int n_seen = static_cast<int>(layers.size());
  const std::vector<double> shares = layer_shares(n_seen);
  const std::vector<double> weights = head_weights();
  HeadCounts ceilings = no_counts(0, n_seen);
  parallel_for(n_seen, [&](int l) {
    if (!layers[l].is_evictable || layers[l].is_elsewhere) return;
    const std::int64_t budget = std::min(ceiling(shares[l]), layer_candidates(l));
    ceilings[l] = parts.heads->ceilings(head_request(l, budget, weights), options);
    check_ceilings(options.heads, l, ceilings[l], *layers[l].ranking);
  });
  return ceilings;
}

// Returns how many of the best `left` candidates of all layers seen each head has. The best `floor` candidates of each
// head come before all others; equal scores go to the later token, then to the lower layer and head.
HeadCounts Cut::State::global_counts(std::int64_t left, std::int64_t floor) const {
  HeadCounts counts = no_counts(0, static_cast<int>(layers.size()));
  std::vector<RankedHead> heads;
  for (int l = 0; l < counts.end_layer(); ++l) {
    for (int h = 0; h < n_kv_head(l); ++h) {
      // A candidate that a stage dropped cannot come back: a head's survivors here are the first of its ranking.
      const std::int64_t n_stored = std::ssize(layers[l].stored[h]);
      counts[l][h] = std::min(floor, n_stored);
      left -= counts[l][h];
      heads.push_back({.layer = l, .head = h, .first = counts[l][h], .last = n_stored});
    }
  }
  for (const RankedHead& head : best_of_heads(layers, std::move(heads), std::max<std::int64_t>(left, 0))) {
    counts[head.layer][head.head] = head.first;
  }
  return counts;
}

HeadCounts Cut::State::global_budgets() const {
  // The floor is the same in every stage of the cascade.
  return global_counts(shared_total(), std::min<std::int64_t>(options.integer("floor"), shared_total() / n_heads()));
}

// Returns the number of entries of each head that are stored in more bits. They are the best of the whole model if the
// method ranks it as a whole; else each head of a layer gets the same fraction of its entries.
HeadCounts Cut::State::high_budgets(const HeadCounts& budgets) {
  HeadCounts high = no_counts(budgets.first_layer(), budgets.end_layer());
  std::vector<std::int64_t> kept;
  double n_window = 0, n_kept = 0;
  for (int l = budgets.first_layer(); l < budgets.end_layer(); ++l) {
    for (int h = 0; h < std::ssize(budgets[l]); ++h) {
      kept.push_back(layers[l].n_protected(h) + budgets[l][h]);
      n_window += layers[l].n_window[h];
      n_kept += static_cast<double>(kept.back());
    }
  }
  if (shape.high.fraction == 0 || budgets.empty()) return high;
  const bool is_stage = in_cascade() && !is_last();
  if (parts.layers->is_global() && shape.fixed_budget.empty()) {
    const double total = std::min(n_kept, static_cast<double>(shape.total));
    const double wanted = std::max(shape.high.fraction * total - n_window, 0.0);
    const HeadCounts best = global_counts(static_cast<std::int64_t>(wanted), 0);
    newest_high = best[best.end_layer() - 1];
    std::vector<double> weights;
    for (int l = 0; l < best.end_layer(); ++l) {
      for (std::size_t h = 0; h < best[l].size(); ++h) {
        weights.push_back(static_cast<double>(layers[l].n_window[h] + best[l][h]));
      }
    }
    const std::vector<std::int64_t> counts = high_counts(shape.high, total, weights, kept, is_stage);
    auto at = counts.begin();
    for (int l = high.first_layer(); l < high.end_layer(); ++l) {
      for (std::int64_t& n : high[l]) n = *at++;
    }
    return high;
  }
  auto at = kept.begin();
  for (int l = high.first_layer(); l < high.end_layer(); ++l) {
    const std::span<const std::int64_t> of_layer(at, high[l].size());
    const std::vector<double> weights(of_layer.begin(), of_layer.end());
    high[l] =
        high_counts(shape.high, std::accumulate(weights.begin(), weights.end(), 0.0), weights, of_layer, is_stage);
    at += std::ssize(high[l]);
  }
  return high;
}

// Returns the newest layer's budgets where the shape fixes them.
HeadCounts Cut::State::fixed_budgets() {
  const int newest = static_cast<int>(layers.size()) - 1;
  std::vector<std::int64_t> budget;
  for (int h = 0; h < n_kv_head(newest); ++h) {
    const std::int64_t fixed = shape.fixed_budget[shape.first_head(newest) + h];
    budget.push_back(std::clamp<std::int64_t>(fixed - n_protected(newest, h), 0, n_candidates(newest, h)));
  }
  fill_report(newest, {budget.begin(), budget.end()}, budget);
  report.layer_share[newest] = static_cast<double>(sum(budget));
  HeadCounts budgets(newest);
  budgets.add(std::move(budget));
  return budgets;
}

// Returns the budgets of the layers from first_layer to the newest by a table that shares the total among all heads.
HeadCounts Cut::State::joint_head_budgets(int first_layer) {
  if (joint_budgets.empty()) allot_joint();
  HeadCounts budgets(first_layer);
  for (int l = first_layer; l < std::ssize(layers); ++l) {
    const std::span<const std::int64_t> layer = of_layer(joint_budgets, l);
    budgets.add({layer.begin(), layer.end()});
    fill_report(l, {}, budgets[l]);
  }
  return budgets;
}

// Returns the budgets of the layers from first_layer to the newest: each layer's heads share its own budget.
HeadCounts Cut::State::layered_budgets(int first_layer, const ParallelFor& parallel_for) {
  if (layer_budgets.empty()) allot_layers();
  const std::vector<double> weights = head_weights();
  HeadCounts budgets = no_counts(first_layer, static_cast<int>(layers.size()));
  parallel_for(budgets.end_layer() - first_layer, [&](int i) {
    const int l = first_layer + i;
    if (!layers[l].is_evictable || layers[l].is_elsewhere) return;
    std::vector<double> shares = parts.heads->shares(head_request(l, layer_budgets[l], weights), options);
    check_shares(options.heads, l, shares, layer_budgets[l], *layers[l].ranking);
    budgets[l] = round_shares(shares, layer_budgets[l]);
    fill_report(l, std::move(shares), budgets[l]);
  });
  return budgets;
}

// Returns the budgets that are to be carried out now, of the layers from some one to the newest; empty if none.
HeadCounts Cut::State::due(const ParallelFor& parallel_for) {
  const int newest = static_cast<int>(layers.size()) - 1;
  if (!shape.fixed_budget.empty()) return fixed_budgets();
  if (!is_prefill && !is_last()) return HeadCounts(newest);

  const bool is_global = parts.layers->is_global();
  if (in_cascade() && !is_last()) return is_global ? global_budgets() : stage_ceilings(parallel_for);
  if (is_global) {
    HeadCounts budgets = global_budgets();
    for (int l = 0; l <= newest; ++l) {
      report.layer_share[l] = static_cast<double>(sum(budgets[l]));
      fill_report(l, {budgets[l].begin(), budgets[l].end()}, budgets[l]);
    }
    return budgets;
  }
  const int first_layer = in_cascade() || !is_prefill || is_final ? 0 : newest;
  return parts.joint_table() != nullptr ? joint_head_budgets(first_layer) : layered_budgets(first_layer, parallel_for);
}

}  // namespace winnow
