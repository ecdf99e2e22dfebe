#include "engine/rows_attention.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/attention.h"
#include "kernels/rows.h"

namespace winnow {

kernels::AttentionShape attention_shape(const Hparams& hparams, const CacheShape& shape) {
  return {
      .n_group = hparams.n_group(),
      .key_dim = hparams.head_dim,
      .value_dim = hparams.head_dim,
      .key_type = shape.key_type,
      .value_type = shape.value_type,
      .spec = {.scale = 1.0F / std::sqrt(static_cast<float>(hparams.head_dim)), .window = hparams.sliding_window},
  };
}

RowsAttention::RowsAttention(const Hparams& hparams, const CacheShape& shape, Compute& compute)
    : hparams_(hparams),
      shape_(shape),
      kernel_shape_(attention_shape(hparams, shape)),
      compute_(compute),
      n_before_(static_cast<std::size_t>(hparams.n_kv_head)),
      staged_runs_(static_cast<std::size_t>(hparams.n_kv_head)),
      heads_(static_cast<std::size_t>(hparams.n_kv_head)) {
  const std::size_t bytes = kernels::causal_attention_scratch_bytes(kernel_shape_);
  for (int i = 0; i < compute.n_threads(); ++i) scratch_.emplace_back(bytes);
}

void RowsAttention::begin_staged(StagingBuffer& staging, std::span<QueryEvidence* const> recorders,
                                 const RowCopies& copies, std::int32_t first_token, std::int32_t n_rows,
                                 std::int32_t first_position) {
  staging_ = &staging;
  cache_ = nullptr;
  recorders_ = recorders;
  copies_ = copies;
  n_rows_ = n_rows;
  first_token_ = first_token;
  first_position_ = first_position;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    staged_runs_[h] = staging.run(static_cast<int>(h), first_token + n_rows);
    heads_[h] = {.runs = std::span(&staged_runs_[h], 1), .n_entries = first_token + n_rows};
    n_before_[h] = first_token;
  }
}

void RowsAttention::begin_cached(RaggedCache& cache, std::span<QueryEvidence* const> recorders, int layer,
                                 std::int32_t n_rows, std::int32_t n_later, std::int32_t first_position) {
  staging_ = nullptr;
  cache_ = &cache;
  recorders_ = recorders;
  copies_ = {};
  n_rows_ = n_rows;
  first_position_ = first_position;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    heads_[h] = cache.entries(layer, static_cast<int>(h));
    n_before_[h] = heads_[h].n_entries - n_later - n_rows;
  }
}

ggml_tensor* RowsAttention::attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q,
                                   ggml_tensor* k, ggml_tensor* v) {
  layer_ = layer;
  // The unrotated queries are an argument only where they are read: else RoPE can work in their memory.
  ggml_tensor* stored[4] = {k, v, q, q_unrotated};
  const bool wants_unrotated = std::any_of(recorders_.begin(), recorders_.end(),
                                           [](const QueryEvidence* e) { return e->needs().query_moments; });
  const int n_stored = wants_unrotated ? 4 : 3;
  ggml_tensor* store_node =
      ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, stored, n_stored, store, GGML_N_TASKS_MAX, this);
  ggml_tensor* attended[2] = {q, store_node};
  return ggml_custom_4d(context, GGML_TYPE_F32, std::int64_t{hparams_.head_dim} * hparams_.n_head, n_rows_, 1, 1,
                        attended, 2, run, GGML_N_TASKS_MAX, this);
}

void RowsAttention::store(ggml_tensor* dst, int ith, int nth, void* userdata) {
  auto& self = *static_cast<RowsAttention*>(userdata);
  try {
    self.store_rows(dst, ith, nth);
  } catch (...) {
    self.compute_.fail(std::current_exception());
  }
}

void RowsAttention::run(ggml_tensor* dst, int ith, int /*nth*/, void* userdata) {
  auto& self = *static_cast<RowsAttention*>(userdata);
  try {
    self.attend_rows(dst, ith);
  } catch (...) {
    self.compute_.fail(std::current_exception());
  }
}

void RowsAttention::store_rows(const ggml_tensor* dst, int ith, int nth) {
  if (ith == 0) next_task_ = 0;  // the attention node begins after a barrier
  const auto* k = static_cast<const float*>(dst->src[0]->data);
  const auto* v = static_cast<const float*>(dst->src[1]->data);
  const auto* q = static_cast<const float*>(dst->src[2]->data);
  const std::int64_t d = hparams_.head_dim;
  const int first = static_cast<int>(std::int64_t{n_rows_} * ith / nth);
  const int last = static_cast<int>(std::int64_t{n_rows_} * (ith + 1) / nth);
  for (int r = first; r < last; ++r) {
    for (int h = 0; h < hparams_.n_kv_head; ++h) {
      const std::int64_t at = (std::int64_t{r} * hparams_.n_kv_head + h) * d;
      const std::int32_t entry = n_before_[static_cast<std::size_t>(h)] + r;
      std::byte* key = staging_ != nullptr ? staging_->key_row(h, entry) : cache_->key_row(layer_, h, entry);
      std::byte* value = staging_ != nullptr ? staging_->value_row(h, entry) : cache_->value_row(layer_, h, entry);
      kernels::store_row(shape_.key_type, k + at, key, hparams_.head_dim);
      kernels::store_row(shape_.value_type, v + at, value, hparams_.head_dim);
    }
    const std::int64_t q_row = std::int64_t{hparams_.n_head} * d;
    const std::int64_t k_row = std::int64_t{hparams_.n_kv_head} * d;
    for (QueryEvidence* evidence : recorders_) {
      evidence->record(layer_, first_position_ + r, first_position_ + n_rows_, q + r * q_row);
    }
    if (copies_.q != nullptr) std::copy_n(q + r * q_row, q_row, copies_.q + r * q_row);
    if (copies_.k != nullptr) std::copy_n(k + r * k_row, k_row, copies_.k + r * k_row);
  }
  for (QueryEvidence* evidence : recorders_) {
    if (!evidence->needs().query_moments) continue;
    const auto* unrotated = static_cast<const float*>(dst->src[3]->data);
    for (int h = ith; h < hparams_.n_head; h += nth) {
      evidence->add_moments(layer_, h, unrotated + h * d, hparams_.n_head * d, n_rows_, first_position_);
    }
  }
}

void RowsAttention::attend_rows(const ggml_tensor* dst, int ith) {
  const auto* q = static_cast<const float*>(dst->src[0]->data);
  auto* out = static_cast<float*>(dst->data);
  const std::int64_t row_floats = std::int64_t{hparams_.n_head} * hparams_.head_dim;
  const std::span scratch(scratch_[static_cast<std::size_t>(ith)].data(),
                          scratch_[static_cast<std::size_t>(ith)].bytes());
  const int n_blocks = (n_rows_ + kernels::kCausalBlockRows - 1) / kernels::kCausalBlockRows;
  std::vector<float> log_sum_exp;

  // Later blocks see more entries: hand the expensive ones out first.
  for (int task = next_task_++; task < n_blocks * hparams_.n_kv_head; task = next_task_++) {
    const int block = n_blocks - 1 - task / hparams_.n_kv_head;
    const int kv_head = task % hparams_.n_kv_head;
    const std::int32_t first_row = block * kernels::kCausalBlockRows;
    const std::int64_t at = first_row * row_floats + std::int64_t{kv_head} * hparams_.n_group() * hparams_.head_dim;
    const kernels::QueryRows rows{
        .q = q + at,
        .row_stride = row_floats,
        .n_rows = std::min(kernels::kCausalBlockRows, n_rows_ - first_row),
        .n_visible = n_before_[static_cast<std::size_t>(kv_head)] + first_row + 1,
        .first_position = first_position_ + first_row,
    };
    const bool wants_sums = std::any_of(recorders_.begin(), recorders_.end(), [&](QueryEvidence* e) {
      return e->log_sum_exp_row(layer_, rows.first_position) != nullptr;
    });
    if (wants_sums) log_sum_exp.resize(static_cast<std::size_t>(rows.n_rows * hparams_.n_group()));
    kernels::causal_attention(
        kernel_shape_, heads_[static_cast<std::size_t>(kv_head)], rows,
        {.out = out + at, .row_stride = row_floats, .log_sum_exp = wants_sums ? log_sum_exp.data() : nullptr}, scratch);
    for (std::int32_t r = 0; wants_sums && r < rows.n_rows; ++r) {
      for (QueryEvidence* evidence : recorders_) {
        float* sums = evidence->log_sum_exp_row(layer_, rows.first_position + r);
        if (sums == nullptr) continue;
        std::copy_n(log_sum_exp.data() + r * hparams_.n_group(), hparams_.n_group(),
                    sums + kv_head * hparams_.n_group());
      }
    }
  }
}

}  // namespace winnow
