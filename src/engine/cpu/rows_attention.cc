#include "engine/cpu/rows_attention.h"

#include <ggml.h>

#include <algorithm>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/entries/rows.h"

namespace winnow {

RowsAttention::RowsAttention(const Model::Impl& model, EntrySink& sink, Compute& compute)
    : model_(model),
      sink_(sink),
      key_type_(sink.shape().key_type),
      value_type_(sink.shape().value_type),
      compute_(compute) {
  std::size_t bytes = 0;
  for (int l = 0; l < model.spec.n_layer(); ++l) {
    if (model.spec.layers[static_cast<std::size_t>(l)].n_kv_head == 0) continue;
    const kernels::AttentionShape layer = attention_shape(model, l, key_type_, value_type_);
    bytes = std::max(bytes, kernels::causal_attention_scratch_bytes(layer));
  }
  for (int i = 0; i < compute.n_threads(); ++i) scratch_.emplace_back(bytes);
}

void RowsAttention::begin(const LayerPlan& plan) {
  layer_ = plan.layer;
  spec_ = &model_.spec.layers[static_cast<std::size_t>(plan.layer)];
  kernel_shape_ = attention_shape(model_, plan.layer, key_type_, value_type_);
  recorders_ = plan.recorders;
  recorded_end_ = plan.recorded_end;
  copies_ = plan.copies;
  is_output_read_ = plan.is_output_read;
  n_rows_ = plan.rows.n_rows;
  first_position_ = plan.rows.first_position;
  sink_.begin_rows(spec_->kv_layer, first_position_, n_rows_);
  heads_.clear();
  for (int h = 0; h < spec_->n_kv_head; ++h) heads_.push_back(sink_.head(h));
}

void RowsAttention::begin(int layer, std::int32_t n_rows, RecurrentState::Update state) {
  const auto at = static_cast<std::size_t>(layer);
  recurrent_ = {.spec = &model_.spec.layers[at],
                .weights = &model_.weights.layers[at],
                .compute = &compute_,
                .sequences = {{.state = state, .first_row = 0, .n_rows = n_rows}}};
}

ggml_tensor* RowsAttention::recur(ggml_context* context, int /*layer*/, RecurrentStep step,
                                  std::span<ggml_tensor* const> inputs) {
  return recurrent_node(context, recurrent_, step, inputs);
}

ggml_tensor* RowsAttention::attend(ggml_context* context, int /*layer*/, ggml_tensor* q_unrotated, ggml_tensor* q,
                                   ggml_tensor* k, ggml_tensor* v) {
  const auto attention_node = [&](ggml_tensor** inputs, int n_inputs) {
    return ggml_custom_4d(context, GGML_TYPE_F32, spec_->output_size(), n_rows_, 1, 1, inputs, n_inputs, run,
                          GGML_N_TASKS_MAX, this);
  };
  if (k == nullptr) {
    next_task_ = 0;  // a graph runs only once
    return attention_node(&q, 1);
  }
  // The unrotated queries are an argument only where they are read: otherwise RoPE can work in their memory.
  ggml_tensor* stored[4] = {k, v, q, q_unrotated};
  const bool wants_unrotated = std::any_of(recorders_.begin(), recorders_.end(),
                                           [&](const QueryEvidence* e) { return e->wants_moments(layer_); });
  const int n_stored = wants_unrotated ? 4 : 3;
  ggml_tensor* store_node =
      ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, stored, n_stored, store, GGML_N_TASKS_MAX, this);
  ggml_tensor* attended[2] = {q, store_node};
  return attention_node(attended, 2);
}

void RowsAttention::store(ggml_tensor* dst, int ith, int nth, void* userdata) {
  auto& self = *static_cast<RowsAttention*>(userdata);
  self.compute_.guard([&] { self.store_rows(dst, ith, nth); });
}

void RowsAttention::run(ggml_tensor* dst, int ith, int /*nth*/, void* userdata) {
  auto& self = *static_cast<RowsAttention*>(userdata);
  self.compute_.guard([&] { self.attend_rows(dst, ith); });
}

void RowsAttention::store_rows(const ggml_tensor* dst, int ith, int nth) {
  if (ith == 0) next_task_ = 0;  // the attention node begins after a barrier
  const auto* k = static_cast<const float*>(dst->src[0]->data);
  const auto* v = static_cast<const float*>(dst->src[1]->data);
  const auto* q = static_cast<const float*>(dst->src[2]->data);
  const std::int64_t key_dim = spec_->key_dim;
  const std::int64_t value_dim = spec_->value_dim;
  const std::int64_t q_row = spec_->q_size();
  const int first = static_cast<int>(std::int64_t{n_rows_} * ith / nth);
  const int last = static_cast<int>(std::int64_t{n_rows_} * (ith + 1) / nth);
  for (int r = first; r < last; ++r) {
    for (int h = 0; h < spec_->n_kv_head; ++h) {
      const std::int64_t at = std::int64_t{r} * spec_->n_kv_head + h;
      const std::int32_t entry = heads_[static_cast<std::size_t>(h)].n_before + r;
      kernels::store_row(kernels::plain_type(key_type_), k + at * key_dim, sink_.key_row(h, entry), spec_->key_dim);
      kernels::store_row(kernels::plain_type(value_type_), v + at * value_dim, sink_.value_row(h, entry),
                         spec_->value_dim);
    }
    for (QueryEvidence* evidence : recorders_) {
      evidence->record(layer_, first_position_ + r, recorded_end_, q + r * q_row);
    }
    if (copies_.q != nullptr) std::copy_n(q + r * q_row, q_row, copies_.q + r * q_row);
  }
  for (QueryEvidence* evidence : recorders_) {
    if (!evidence->wants_moments(layer_)) continue;
    const auto* unrotated = static_cast<const float*>(dst->src[3]->data);
    for (int h = ith; h < spec_->n_head; h += nth) {
      evidence->add_moments(layer_, h, unrotated + h * key_dim, q_row, n_rows_, first_position_);
    }
  }
}

void RowsAttention::attend_rows(const ggml_tensor* dst, int ith) {
  const auto* q = static_cast<const float*>(dst->src[0]->data);
  auto* out = static_cast<float*>(dst->data);
  const std::int64_t q_row = spec_->q_size();
  const std::int64_t out_row = spec_->output_size();
  const int n_group = spec_->n_group();
  const std::span scratch(scratch_[static_cast<std::size_t>(ith)].data(),
                          scratch_[static_cast<std::size_t>(ith)].bytes());
  const int n_blocks = (n_rows_ + kernels::kCausalBlockRows - 1) / kernels::kCausalBlockRows;
  std::vector<float> log_sum_exp;

  // Later blocks attend to more entries, so they are handed out first.
  for (int task = next_task_++; task < n_blocks * spec_->n_kv_head; task = next_task_++) {
    const int block = n_blocks - 1 - task / spec_->n_kv_head;
    const int kv_head = task % spec_->n_kv_head;
    const std::int32_t first_row = block * kernels::kCausalBlockRows;
    const EntrySink::Head& head = heads_[static_cast<std::size_t>(kv_head)];
    const kernels::QueryRows rows{
        .q = q + first_row * q_row + std::int64_t{kv_head} * n_group * spec_->key_dim,
        .row_stride = q_row,
        .n_rows = std::min(kernels::kCausalBlockRows, n_rows_ - first_row),
        .n_visible = head.n_before + first_row + 1,
        .first_position = first_position_ + first_row,
    };
    const bool wants_sums =
        copies_.log_sum_exp != nullptr || std::any_of(recorders_.begin(), recorders_.end(), [&](QueryEvidence* e) {
          return e->log_sum_exp_row(layer_, rows.first_position) != nullptr;
        });
    if (!is_output_read_ && !wants_sums) continue;
    if (wants_sums) log_sum_exp.resize(static_cast<std::size_t>(rows.n_rows * n_group));
    kernels::causal_attention(kernel_shape_.of_head(kv_head), head.entries, rows,
                              {.out = out + first_row * out_row + std::int64_t{kv_head} * n_group * spec_->value_dim,
                               .row_stride = out_row,
                               .log_sum_exp = wants_sums ? log_sum_exp.data() : nullptr},
                              scratch);
    for (std::int32_t r = 0; wants_sums && r < rows.n_rows; ++r) {
      const auto save = [&](float* of_row) {
        if (of_row != nullptr) std::copy_n(log_sum_exp.data() + r * n_group, n_group, of_row + kv_head * n_group);
      };
      for (QueryEvidence* evidence : recorders_) save(evidence->log_sum_exp_row(layer_, rows.first_position + r));
      if (copies_.log_sum_exp != nullptr) {
        save(copies_.log_sum_exp + std::int64_t{first_row + r} * spec_->n_head);
      }
    }
  }
}

}  // namespace winnow
