#include "engine/prefill/reconstruction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "base/aligned_bytes.h"
#include "engine/evidence/query_evidence.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/query_rows.h"
#include "kernels/statistics/window_statistics.h"
#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"

namespace winnow {
namespace {

// Tokens that are repeated together: the later of them attend to those before.
constexpr std::int32_t kPart = 2048;
// The same for a late repeat. What a row finds among the rows before it, it does not look up in the prompt, and its
// hidden state knows the tokens before it anyway: with 2,048, more needles are lost. All rows of a part see what lies
// near any of them, so a short part sees less; batches shorter still make slower products (docs/methods.md).
constexpr std::int32_t kLatePart = 256;
constexpr std::int32_t kNear = 128;  // tokens on either side of a part

// The rows of all parts see one in so many of the entries, and the first and last ones: attention sinks, and what the
// sequence ends with.
constexpr std::int32_t kOneIn = 8, kFirst = 4, kLast = 32;

}  // namespace

std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context) {
  constexpr std::size_t kOverlap = 8;
  const std::vector<Token> first = model.tokenize("\n\nRepeat the previous context exactly.", false, false);
  const std::vector<Token> later =
      model.tokenize("\n\nRepeat the part of the previous context exactly, starting with", false, false);
  std::vector<std::vector<Token>> parts;
  for (std::size_t begin = 0; begin < context.size(); begin += std::size_t{kPart}) {
    std::vector<Token>& part = parts.emplace_back(begin == 0 ? first : later);
    const std::size_t from = begin - std::min(begin, kOverlap);
    const std::size_t end = std::min(begin + std::size_t{kPart}, context.size());
    part.insert(part.end(), context.begin() + static_cast<std::ptrdiff_t>(from),
                context.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return parts;
}

LateRepeat late_repeat(const ModelSpec& spec) {
  // Why a sixth of the layers: docs/methods.md. Models of few layers leave out the first, so that small ones in tests
  // do what large ones do.
  const int n_layer = spec.n_layer(), n_left_out = std::max(n_layer / 6, 1);
  return {.first_layer = std::min(n_left_out, n_layer - 1), .n_part = kLatePart, .n_near = kNear};
}

std::vector<std::vector<std::int32_t>> entries_seen_everywhere(const LayerView& view, const ParallelFor& parallel_for) {
  EvictionOptions options;
  options.window = kLast;
  LayerEvidence evidence(view, options, 0, parallel_for);
  const std::vector<std::vector<float>>& rms = evidence.reference_rms();
  std::vector<std::vector<std::int32_t>> seen(rms.size());
  evidence.for_each_head([&](int head) {
    const std::vector<float>& scores = rms[static_cast<std::size_t>(head)];
    const std::int32_t n = evidence.n_entries(head);
    std::vector<std::int32_t>& entries = seen[static_cast<std::size_t>(head)];
    entries.resize(scores.size());
    std::iota(entries.begin(), entries.end(), 0);
    const auto n_chosen = std::min(std::ssize(entries), std::ptrdiff_t{n / kOneIn});
    std::nth_element(entries.begin(), entries.begin() + n_chosen, entries.end(), [&](std::int32_t a, std::int32_t b) {
      const float of_a = scores[static_cast<std::size_t>(a)], of_b = scores[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    });
    entries.resize(static_cast<std::size_t>(n_chosen));
    for (std::int32_t i = 0; i < std::min(evidence.n_prefix(head), kFirst); ++i) entries.push_back(i);
    for (std::int32_t i = evidence.n_prefix(head); i < n; ++i) entries.push_back(i);
    std::sort(entries.begin(), entries.end());
    entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  });
  return seen;
}

std::vector<std::vector<std::int32_t>> entries_seen_near_last(std::span<const std::vector<std::int32_t>> everywhere,
                                                              const RepeatedPart& part) {
  std::vector<std::vector<std::int32_t>> seen;
  for (const std::vector<std::int32_t>& of_head : everywhere) {
    std::vector<std::int32_t>& entries = seen.emplace_back(of_head);
    auto next = std::lower_bound(of_head.begin(), of_head.end(), part.near_first);
    for (std::int32_t i = part.near_first; i < part.near_end; ++i) {
      if (next != of_head.end() && *next == i) {
        ++next;
      } else {
        entries.push_back(i);
      }
    }
  }
  return seen;
}

std::vector<std::vector<std::int32_t>> entries_seen(std::span<const std::vector<std::int32_t>> everywhere,
                                                    const RepeatedPart& part) {
  std::vector<std::vector<std::int32_t>> seen = entries_seen_near_last(everywhere, part);
  for (std::size_t h = 0; h < seen.size(); ++h) {
    std::inplace_merge(seen[h].begin(), seen[h].begin() + std::ssize(everywhere[h]), seen[h].end());
  }
  return seen;
}

std::int32_t most_entries_seen(const LateRepeat& repeat, std::int32_t n_tokens) {
  return std::min(n_tokens, n_tokens / kOneIn + kFirst + kLast + repeat.n_part + 2 * repeat.n_near);
}

std::int32_t most_entries_behind(const LateRepeat& repeat, std::int32_t n_tokens) {
  const std::int32_t n_seen = most_entries_seen(repeat, n_tokens);
  return std::min(repeat.n_part, n_tokens) + (n_seen < n_tokens ? n_seen : 0);
}

void replay_rows(const LayerView& view, const RepeatedPart& part, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for) {
  constexpr std::int32_t kRows = 64;
  const auto n_head = static_cast<std::size_t>(view.n_head), key_dim = static_cast<std::size_t>(view.shape.key_dim);
  const auto n_group = static_cast<std::size_t>(view.shape.n_group);
  const auto first_head = static_cast<std::size_t>(part.first) * n_head;
  const std::int32_t n = part.end - part.first, n_blocks = (n + kRows - 1) / kRows;
  float* const own_q = q.data() + first_head * key_dim;
  float* const own_sums = log_sum_exp.data() + first_head;
  parallel_for(n, [&](int row) {
    rotate_further(own_q + static_cast<std::size_t>(row) * n_head * key_dim, n_head, key_dim, view.rotation,
                   view.n_tokens - part.first);
  });
  const auto add = [](float& sum, float other) {
    sum = std::max(sum, other) + std::log1p(std::exp(-std::abs(sum - other)));
  };
  if (view.statistics != nullptr) {
    const RowAttention measured =
        view.statistics->attend({.q = own_q, .n_rows = n, .sees_all = true}, /*wants_out=*/false);
    for (std::size_t i = 0; i < measured.log_sum_exp.size(); ++i) add(own_sums[i], measured.log_sum_exp[i]);
    return;
  }
  parallel_for(n_blocks * view.n_kv_head, [&](int item) {
    const int head = item % view.n_kv_head;
    const std::int32_t first = item / view.n_kv_head * kRows, n_rows = std::min(kRows, n - first);
    const kernels::QueryRows rows = rows_of_head(
        view, {.q = own_q + static_cast<std::size_t>(first) * n_head * key_dim, .n_rows = n_rows, .sees_all = true},
        head);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, n_rows));
    std::vector<float> sums(n_group * static_cast<std::size_t>(n_rows));
    kernels::row_log_sum_exps(view.shape.of_head(head), view.heads[static_cast<std::size_t>(head)], rows, sums.data(),
                              scratch.span());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      add(own_sums[(static_cast<std::size_t>(first) + i / n_group) * n_head + static_cast<std::size_t>(head) * n_group +
                   i % n_group],
          sums[i]);
    }
  });
}

}  // namespace winnow
