#include "engine/prefill/reconstruction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/aligned_bytes.h"
#include "engine/evidence/query_evidence.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/query_rows.h"
#include "kernels/statistics/window_statistics.h"

namespace winnow {
namespace {

// Tokens that are repeated together: the later of them attend to those before.
constexpr std::int32_t kPart = 2048;
// The same for a late repeat. What a row finds among the rows before it, it does not look up in the prompt, and its
// hidden state knows the tokens before it anyway: with 2,048, more needles are lost. Fewer than 512 gain little, and
// make batches smaller (docs/methods.md).
constexpr std::int32_t kLatePart = 512;

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
  return {.first_layer = std::min(n_left_out, n_layer - 1), .n_part = kLatePart};
}

void replay_rows(const LayerView& view, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for) {
  constexpr std::int32_t kRows = 256;
  const auto n_head = static_cast<std::size_t>(view.n_head), key_dim = static_cast<std::size_t>(view.shape.key_dim);
  const auto n_group = static_cast<std::size_t>(view.shape.n_group);
  const std::int32_t n = view.n_tokens, n_blocks = (n + kRows - 1) / kRows;
  parallel_for(n, [&](int row) {
    rotate_further(q.data() + static_cast<std::size_t>(row) * n_head * key_dim, n_head, key_dim, view.rotation,
                   n - row / kLatePart * kLatePart);
  });
  const auto add = [](float& sum, float other) {
    sum = std::max(sum, other) + std::log1p(std::exp(-std::abs(sum - other)));
  };
  if (view.statistics != nullptr) {
    constexpr std::int32_t kMeasured = 2048;  // rows at a time
    for (std::int32_t first = 0; first < n; first += kMeasured) {
      const std::size_t at = static_cast<std::size_t>(first) * n_head;
      const RowAttention measured = view.statistics->attend(
          {.q = q.data() + at * key_dim, .n_rows = std::min(kMeasured, n - first), .sees_all = true},
          /*wants_out=*/false);
      for (std::size_t i = 0; i < measured.log_sum_exp.size(); ++i) add(log_sum_exp[at + i], measured.log_sum_exp[i]);
    }
    return;
  }
  parallel_for(n_blocks * view.n_kv_head, [&](int item) {
    const int head = item % view.n_kv_head;
    const std::int32_t first = item / view.n_kv_head * kRows, n_rows = std::min(kRows, n - first);
    const kernels::QueryRows rows = rows_of_head(
        view, {.q = q.data() + static_cast<std::size_t>(first) * n_head * key_dim, .n_rows = n_rows, .sees_all = true},
        head);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, n_rows));
    std::vector<float> sums(n_group * static_cast<std::size_t>(n_rows));
    kernels::row_log_sum_exps(view.shape.of_head(head), view.heads[static_cast<std::size_t>(head)], rows, sums.data(),
                              scratch.span());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      add(log_sum_exp[(static_cast<std::size_t>(first) + i / n_group) * n_head +
                      static_cast<std::size_t>(head) * n_group + i % n_group],
          sums[i]);
    }
  });
}

}  // namespace winnow
