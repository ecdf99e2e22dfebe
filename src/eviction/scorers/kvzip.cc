// kvzip: the largest attention weight that a token gets from the rows of a pass that reconstructs the context.
// Kim et al., "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction", arXiv 2505.23416:
//   score_i = max_{h, j} A[h][j][i], j over the rows of the pass, h over the GQA group
// A row's softmax goes over the whole context and the earlier keys of its own pass. Of a pass without a request (the
// late repeat of `combined`) only the tokens near those that it repeats get a score: what follows a row's token is
// there, and the maxima take a time linear in the context.
//
// kvzip+: the largest part that the attention on a token adds to a row's residual stream.
// Jegou et al., "KVzap: Fast, Adaptive, and Faithful KV Cache Pruning", arXiv 2601.07891:
//   score_i = max_{h, j} A[h][j][i] || v_i W_O[h] ||_2 / || x_j ||_2, x_j the row's residual stream before the layer
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "eviction/evidence/column_folds.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/head_parts.h"
#include "eviction/evidence/pooling.h"
#include "eviction/options/registry.h"
#include "eviction/refit/matrix_product.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Columns = std::vector<std::vector<float>>;

// Returns the Gram matrices W_O[h] W_O[h]^T of all query heads: [n_head][value_dim][value_dim].
std::vector<float> gram_matrices(const LayerEvidence& evidence, const float* w_o) {
  const LayerView& view = evidence.layer();
  const int d = view.shape.value_dim;
  const std::ptrdiff_t size = std::ptrdiff_t{d} * d;
  std::vector<float> gram(static_cast<std::size_t>(view.n_head * size));
  evidence.parallel(view.n_head, [&](int head) {
    const float* w = w_o + std::ptrdiff_t{head} * d * view.n_embd;
    multiply(d, d, view.n_embd, 1, {w, view.n_embd}, {w, view.n_embd, true}, 0, gram.data() + head * size, d);
  });
  return gram;
}

// Writes || W_O[h] v ||_2 of a part of a head's entries, for every query head of its group, at the entries' places in
// norms [n_group][n_prefix]. gram: those of the group's heads.
void write_projected_l2_norms(const LayerEvidence& evidence, const HeadPart& part, const float* gram,
                              std::span<float> norms) {
  const int d = evidence.layer().shape.value_dim;
  const auto width = static_cast<std::size_t>(d);
  const std::int32_t n = part.last - part.first;
  std::vector<float> values(static_cast<std::size_t>(n) * width), products(values.size());
  evidence.read_values(part.head, part.first, part.last, values.data());
  for (int g = 0; g < evidence.n_group(); ++g, gram += std::ptrdiff_t{d} * d) {
    multiply(n, d, d, 1, {values.data(), d}, {gram, d}, 0, products.data(), d);
    float* const out = norms.data() + std::ptrdiff_t{g} * evidence.n_prefix(part.head) + part.first;
    for (std::int32_t i = 0; i < n; ++i) {
      float square = 0;
      for (std::ptrdiff_t c = std::ptrdiff_t{i} * d; c < std::ptrdiff_t{i + 1} * d; ++c) {
        square += products[static_cast<std::size_t>(c)] * values[static_cast<std::size_t>(c)];
      }
      out[i] = std::sqrt(std::max(square, 0.0F));
    }
  }
}

// Returns || W_O[h] v ||_2 of every prefix entry and query head: [n_kv_head][n_group * n_prefix].
Columns projected_l2_norms(const LayerEvidence& evidence) {
  const LayerView& view = evidence.layer();
  const bool is_on_device = view.statistics != nullptr;
  std::vector<float> gram = gram_matrices(evidence, is_on_device ? view.statistics->output_projection() : view.w_o);
  Columns norms(static_cast<std::size_t>(evidence.n_kv_head()));
  if (!is_on_device) {
    const std::size_t of_group = gram.size() / norms.size();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      norms[static_cast<std::size_t>(h)].resize(static_cast<std::size_t>(evidence.n_group()) *
                                                static_cast<std::size_t>(evidence.n_prefix(h)));
    }
    const std::vector<HeadPart> parts = cut_heads(evidence, 256, [&](int h) { return evidence.n_prefix(h); });
    evidence.parallel(static_cast<int>(parts.size()), [&](int i) {
      const HeadPart& part = parts[static_cast<std::size_t>(i)];
      const auto h = static_cast<std::size_t>(part.head);
      write_projected_l2_norms(evidence, part, gram.data() + h * of_group, norms[h]);
    });
    return norms;
  }
  const std::vector<std::vector<double>> squares = view.statistics->value_forms(std::move(gram));
  for (std::size_t h = 0; h < norms.size(); ++h) {
    const std::size_t n_entries = squares[h].size() / static_cast<std::size_t>(evidence.n_group());
    const auto n = static_cast<std::size_t>(evidence.n_prefix(static_cast<int>(h)));
    for (std::size_t i = 0; i < squares[h].size(); ++i) {
      if (i % n_entries < n) norms[h].push_back(static_cast<float>(std::sqrt(std::max(squares[h][i], 0.0))));
    }
  }
  return norms;
}

// Returns the entries of every head that a pass's rows are looked for in: [n_kv_head]. A row of a repeat without a
// request looks up what follows its token in the prompt: it is found near the tokens that the pass repeats.
std::vector<kernels::EntryRange> looked_up(const LayerEvidence& evidence, const ReconstructionPass& pass) {
  std::vector<kernels::EntryRange> ranges;
  for (int h = 0; h < evidence.n_kv_head(); ++h) {
    const auto before = [&](std::int32_t position) {
      return std::min(evidence.n_before(h, position), evidence.n_prefix(h));
    };
    ranges.push_back({before(pass.near_first), before(pass.near_end)});
  }
  return ranges;
}

class KvZip final : public Scorer {
 public:
  explicit KvZip(bool is_plus) : is_plus_(is_plus) {}

  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.output_projection = is_plus_, .reconstruction_pass = true, .reconstruction_only = true};
  }
  bool is_attention() const override { return !is_plus_; }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    const LayerView& view = evidence.layer();
    if (view.passes.empty()) {
      throw Error(ErrorCode::kInternal, "kvzip got no reconstruction pass: the engine did not run one");
    }
    const Columns norms = is_plus_ ? projected_l2_norms(evidence) : Columns{};
    LayerScores scores;
    for (int h = 0; h < evidence.n_kv_head(); ++h) scores.emplace_back(evidence.n_prefix(h));
    for (const ReconstructionPass& pass : view.passes) {
      const std::vector<kernels::EntryRange> ranges = looked_up(evidence, pass);
      Columns maxima = largest(evidence, pass, ranges);
      for (std::size_t h = 0; h < scores.size(); ++h) {
        const auto first = static_cast<std::size_t>(ranges[h].first), n = static_cast<std::size_t>(ranges[h].size());
        for (std::size_t i = 0; is_plus_ && i < maxima[h].size(); ++i) {
          maxima[h][i] *= norms[h][i / n * scores[h].size() + first + i % n];
        }
        const std::vector<float> of_pass = group_only(maxima[h], evidence.n_group(), GroupReduction::kMax);
        for (std::size_t i = 0; i < n; ++i) {
          float& score = scores[h][first + i];
          if (!(of_pass[i] <= score)) score = of_pass[i];  // a NaN stays
        }
      }
    }
    return scores;
  }

 private:
  // Returns the maxima over the rows of a pass of the attention, or of the attention divided by the norm of the row's
  // residual stream: [n_kv_head][n_group * size of the range].
  Columns largest(LayerEvidence& evidence, const ReconstructionPass& pass,
                  std::span<const kernels::EntryRange> ranges) const {
    const LayerView& view = evidence.layer();
    evidence.check_finite(pass.q, pass.n_rows);
    // The fold covers the context only; the attention of the rows on each other is part of their log-sum-exps.
    const StatisticsRows rows = {.q = pass.q, .n_rows = pass.n_rows, .sees_all = true, .first_row = pass.first_row};
    if (!is_plus_) return fold_columns(evidence, kernels::ColumnFold::kMax, rows, pass.log_sum_exp, ranges);
    std::vector<float> divided(pass.log_sum_exp, pass.log_sum_exp + std::ptrdiff_t{pass.n_rows} * view.n_head);
    for (std::size_t i = 0; i < divided.size(); ++i) divided[i] += std::log(pass.input_norm[i / view.n_head]);
    return fold_columns(evidence, kernels::ColumnFold::kMax, rows, divided.data(), ranges);
  }

  bool is_plus_;
};

}  // namespace

const Scorer& kvzip_scorer() {
  static const KvZip instance(false);
  return instance;
}

const Scorer& kvzip_plus_scorer() {
  static const KvZip instance(true);
  return instance;
}

}  // namespace winnow
