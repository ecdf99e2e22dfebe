// A random cache with the evidence of its window, for tests of cuts.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "eviction/cut/cut.h"
#include "normal_numbers.h"
#include "winnow/layer_view.h"

namespace winnow::testing {

inline const ParallelFor& serial() {
  static const ParallelFor instance = [](int n_items, const std::function<void(int)>& body) {
    for (int i = 0; i < n_items; ++i) body(i);
  };
  return instance;
}

using Kept = std::vector<std::vector<std::vector<std::int32_t>>>;  // [n_layer][n_kv_head] positions, ascending

class RandomCache {
 public:
  int n_layer, n_kv_head, n_group, head_dim, n_embd = 12;
  std::int32_t n_tokens;
  std::vector<std::vector<float>> keys, values;  // [n_layer][n_kv_head * n_tokens * head_dim]
  std::vector<std::vector<float>> queries;       // [n_layer][n_tokens * n_head * head_dim]
  std::vector<std::vector<float>> w_o;           // [n_layer][n_head * head_dim * n_embd]
  Kept stored;

  // contrast: how much the spread of the attention logits differs from layer to layer; very different layers make
  // shares reach caps.
  RandomCache(int layers, int kv_heads, int group, int dim, std::int32_t tokens, unsigned seed, double contrast = 1.0)
      : n_layer(layers), n_kv_head(kv_heads), n_group(group), head_dim(dim), n_tokens(tokens) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t n, double scale) {
      return test::normal_numbers(n, random, 0, static_cast<float>(scale));
    };
    std::vector<std::int32_t> all(n_tokens);
    std::iota(all.begin(), all.end(), 0);
    for (int l = 0; l < n_layer; ++l) {
      keys.push_back(draw(std::size_t(n_kv_head) * n_tokens * head_dim, 1));
      values.push_back(draw(std::size_t(n_kv_head) * n_tokens * head_dim, 1));
      const double sharpness = std::pow(contrast, l % 3);
      queries.push_back(draw(std::size_t(n_tokens) * n_head() * head_dim, sharpness));
      w_o.push_back(draw(std::size_t(n_head()) * head_dim * n_embd, 1));
      stored.emplace_back(n_kv_head, all);
    }
  }

  int n_head() const { return n_kv_head * n_group; }
  std::int64_t n_heads() const { return std::int64_t{n_layer} * n_kv_head; }
  std::int64_t n_stored() const {
    std::int64_t n = 0;
    for (const auto& layer : stored) {
      for (const auto& head : layer) n += std::ssize(head);
    }
    return n;
  }

  // Shows `body` the stored entries of a layer, in pages of 7 entries.
  void with_view(int l, const EvidenceNeeds& needs, const std::function<void(const LayerView&)>& body) const {
    std::vector<std::vector<float>> k(n_kv_head), v(n_kv_head);
    std::vector<std::vector<kernels::EntryRun>> runs(n_kv_head);
    std::vector<kernels::HeadEntries> heads;
    for (int h = 0; h < n_kv_head; ++h) {
      const std::vector<std::int32_t>& positions = stored[l][h];
      for (const std::int32_t p : positions) {
        const auto row = (std::ptrdiff_t{h} * n_tokens + p) * head_dim;
        k[h].insert(k[h].end(), keys[l].begin() + row, keys[l].begin() + row + head_dim);
        v[h].insert(v[h].end(), values[l].begin() + row, values[l].begin() + row + head_dim);
      }
      for (std::size_t i = 0; i < positions.size(); i += 7) {
        runs[h].push_back({.keys = std::as_bytes(std::span(k[h])).data() + i * head_dim * 4,
                           .values = std::as_bytes(std::span(v[h])).data() + i * head_dim * 4,
                           .positions = positions.data() + i,
                           .n_entries = static_cast<std::int32_t>(std::min<std::size_t>(7, positions.size() - i))});
      }
      heads.push_back({.runs = runs[h], .n_entries = static_cast<std::int32_t>(positions.size())});
    }
    const int n_rows = std::min(needs.window_rows, static_cast<int>(n_tokens));
    LayerView view{.layer = l,
                   .n_head = n_head(),
                   .n_kv_head = n_kv_head,
                   .shape = {.n_group = n_group,
                             .key_dim = head_dim,
                             .value_dim = head_dim,
                             .key_type = EntryType::kF32,
                             .value_type = EntryType::kF32,
                             .spec = {.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))}},
                   .n_tokens = n_tokens,
                   .heads = heads};
    view.window_q =
        n_rows > 0 ? queries[l].data() + (std::ptrdiff_t{n_tokens} - n_rows) * n_head() * head_dim : nullptr;
    view.n_window_rows = n_rows;
    view.n_embd = n_embd;
    view.w_o = w_o[l].data();
    body(view);
  }

  // Carries out one cut as an engine does. `most_stored` receives the largest number of entries that the layers seen so
  // far hold at any time.
  CutReport cut(const EvictionOptions& options, std::int64_t total, bool one_shot,
                std::int64_t* most_stored = nullptr) {
    Cut cut(options, {.heads = std::vector<int>(n_layer, n_kv_head),
                      .n_tokens = n_tokens,
                      .total = total,
                      .stored = one_shot ? n_stored() : 0});
    return run(cut, options, most_stored);
  }

  CutReport run(Cut& cut, const EvictionOptions& options, std::int64_t* most_stored = nullptr) {
    if (cut.keeps_everything()) return cut.report();
    std::int64_t n_seen = 0;  // entries of the layers seen so far
    for (int l = 0; l < n_layer; ++l) {
      for (const auto& head : stored[l]) n_seen += std::ssize(head);
      if (most_stored != nullptr) *most_stored = std::max(*most_stored, n_seen);
      with_view(l, Cut::needs(options), [&](const LayerView& view) {
        for (const LayerCut& layer_cut : cut.add_layer(view, serial())) {
          for (int h = 0; h < n_kv_head; ++h) {
            std::vector<std::int32_t>& head = stored[layer_cut.layer][h];
            std::vector<std::int32_t> survivors;
            for (const std::int32_t i : layer_cut.kept[h]) survivors.push_back(head.at(i));
            n_seen -= std::ssize(head) - std::ssize(survivors);
            head = std::move(survivors);
          }
        }
      });
    }
    return cut.report();
  }
};

}  // namespace winnow::testing
