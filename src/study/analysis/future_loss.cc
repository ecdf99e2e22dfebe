#include "study/analysis/future_loss.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "study/calibrate/marginal_utility.h"
#include "winnow/entries.h"

namespace winnow {
namespace {

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

void add_future_losses(std::span<const std::vector<std::int32_t>> positions,
                       std::span<const std::vector<double>> importance, std::span<const std::vector<double>> attention,
                       LayerOutcome& outcome) {
  for (std::size_t h = 0; h < positions.size(); ++h) {
    const std::vector<double>& head = importance[h];
    const std::size_t n_kept = positions[h].size();
    std::vector<char> is_kept(head.size(), 0);
    double mass = 0;
    for (const std::int32_t p : positions[h]) {
      is_kept[static_cast<std::size_t>(p)] = 1;
      mass += attention[h][static_cast<std::size_t>(p)];
    }
    double loss = 0;
    for (std::size_t i = 0; i < head.size(); ++i) loss += is_kept[i] != 0 ? 0.0 : head[i];
    outcome.loss.push_back(loss);

    // The most important entries come first; of equals the later one, as in every ranking.
    std::vector<std::int32_t> order(head.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const double x = head[static_cast<std::size_t>(a)], y = head[static_cast<std::size_t>(b)];
      return x != y ? x > y : a > b;
    });
    std::size_t found = 0;
    double least = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto entry = static_cast<std::size_t>(order[i]);
      if (i < n_kept) {
        found += is_kept[entry] != 0 ? 1U : 0U;
      } else {
        least += head[entry];
      }
    }
    outcome.least_loss.push_back(least);
    outcome.recall.push_back(n_kept > 0 ? static_cast<double>(found) / static_cast<double>(n_kept) : 1.0);
    const double all = sum(attention[h]);
    outcome.future_mass.push_back(all > 0 ? mass / all : 1.0);
  }
}

LossByBytes loss_by_bytes(std::span<const std::vector<double>> importance, std::span<const LayerInfo* const> layers) {
  LossByBytes losses = {};
  const auto bytes_of = [](const LayerInfo& layer, EntryType type) {
    return static_cast<double>(kernels::entry_bytes(layer, type, type));
  };
  double total = 0, bytes_full = 0;
  for (std::size_t h = 0; h < importance.size(); ++h) {
    total += sum(importance[h]);
    bytes_full += bytes_of(*layers[h], EntryType::kF16) * static_cast<double>(importance[h].size());
  }
  if (!(total > 0)) return losses;
  struct Entry {
    double importance, bytes;
  };
  for (std::size_t t = 0; t < kByteTypes.size(); ++t) {
    const bool fits = std::all_of(layers.begin(), layers.end(), [&](const LayerInfo* layer) {
      return kByteTypes[t] != EntryType::kQ8_0 || (layer->key_dim % 32 == 0 && layer->value_dim % 32 == 0);
    });
    if (!fits) {
      losses[t].fill(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    std::vector<Entry> entries;
    for (std::size_t h = 0; h < importance.size(); ++h) {
      const double bytes = bytes_of(*layers[h], kByteTypes[t]);
      for (const double value : importance[h]) entries.push_back({value, bytes});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.importance * b.bytes > b.importance * a.bytes; });
    double kept = 0, bytes = 0;
    std::size_t next = 0;
    for (std::size_t s = 0; s < kByteShares.size(); ++s) {
      for (; next < entries.size() && bytes + entries[next].bytes <= kByteShares[s] * bytes_full; ++next) {
        kept += entries[next].importance;
        bytes += entries[next].bytes;
      }
      losses[t][s] = next == entries.size() ? 0.0 : std::max(1 - kept / total, 0.0);
    }
  }
  return losses;
}

void add_model_losses(const HeadValues& importance, const std::vector<std::vector<float>>& scores,
                      const EvictionOptions& method, CutOutcome& outcome) {
  double total = 0;
  std::vector<double> all;
  for (const std::vector<double>& head : importance) {
    total += sum(head);
    all.insert(all.end(), head.begin(), head.end());
  }
  if (!(total > 0)) return;
  for (const LayerOutcome& layer : outcome.layers) {
    outcome.oracle_loss += sum(layer.loss) / total;
    outcome.least_loss += sum(layer.least_loss) / total;
  }
  const auto n_kept = static_cast<std::ptrdiff_t>(outcome.entries_kept);
  std::nth_element(all.begin(), all.begin() + std::min(n_kept, std::ssize(all)), all.end(), std::greater<>());
  outcome.best_loss = sum(std::span(all).subspan(static_cast<std::size_t>(n_kept))) / total;

  Curves convex;
  const auto sinks = static_cast<std::size_t>(method.sinks);
  std::int64_t n_protected = 0;
  for (std::size_t h = 0; h < importance.size(); ++h) {
    const std::size_t n = scores[h].size() - std::min(sinks, scores[h].size());
    convex.push_back(convex_surrogate(
        loss_curve(std::span(importance[h]).subspan(scores[h].size() - n, n), std::span(scores[h]).last(n))));
    n_protected += std::ssize(importance[h]) - static_cast<std::int64_t>(n);
  }
  const std::vector<std::int32_t> budgets =
      greedy_budgets(convex, std::max<std::int64_t>(outcome.entries_kept - n_protected, 0));
  outcome.best_allocation = loss_at(convex, budgets) / total;
}

}  // namespace winnow
