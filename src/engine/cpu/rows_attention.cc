#include "engine/cpu/rows_attention.h"

#include <ggml.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/attention_shape.h"
#include "kernels/attention/attention.h"
#include "kernels/entries/rows.h"

namespace winnow {

RowsAttention::RowsAttention(const Model::Impl& model, EntrySink& sink, Compute& compute, Graph& graph)
    : model_(model),
      sink_(sink),
      key_type_(sink.shape().key_type),
      value_type_(sink.shape().value_type),
      compute_(compute),
      graph_(graph) {
  std::size_t bytes = 0;
  for (int l = 0; l < model.spec.n_layer(); ++l) {
    if (model.spec.layer(l).n_kv_head == 0) continue;
    const kernels::AttentionShape layer = attention_shape(model, l, key_type_, value_type_);
    bytes = std::max(bytes, kernels::causal_attention_scratch_bytes(layer));
  }
  for (int i = 0; i < compute.n_threads(); ++i) scratch_.emplace_back(bytes);
}

void RowsAttention::begin(const LayerPlan& plan) {
  batch_ = plan;
  spec_ = &model_.spec.layer(plan.layer);
  kernel_shape_ = attention_shape(model_, plan.layer, key_type_, value_type_);
  sink_.begin_rows(spec_->kv_layer, batch_.rows.first_position, batch_.rows.n_rows);
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

ggml_tensor* RowsAttention::attend(ggml_context* /*context*/, int /*layer*/, ggml_tensor* q_unrotated, ggml_tensor* q,
                                   ggml_tensor* k, ggml_tensor* v) {
  const auto data = [](const ggml_tensor* tensor) { return static_cast<const float*>(tensor->data); };
  std::vector<ggml_tensor*> attended = {q};
  if (k != nullptr) {
    // Inputs are kept until the node's turn, so unrotated queries are one only where they are read: otherwise RoPE can
    // work in their memory.
    std::vector<ggml_tensor*> stored = {k, v, q};
    const bool wants_unrotated = batch_.wants_moments();
    if (wants_unrotated) stored.push_back(q_unrotated);
    attended.push_back(graph_.own(GGML_TYPE_F32, 1, 1, stored, [=, this](ggml_tensor* /*node*/) {
      store(data(k), data(v), data(q), wants_unrotated ? data(q_unrotated) : nullptr);
    }));
  }
  return graph_.own(GGML_TYPE_F32, spec_->output_size(), batch_.rows.n_rows, attended,
                    [=, this](ggml_tensor* node) { attend_rows(data(q), static_cast<float*>(node->data)); });
}

// Stores the rows' keys and values, and records what is wanted of their queries.
void RowsAttention::store(const float* k, const float* v, const float* q, const float* q_unrotated) {
  constexpr int kAtOnce = 16;  // rows
  compute_.parallel_for((batch_.rows.n_rows + kAtOnce - 1) / kAtOnce, [&](int block) {
    const int last = std::min((block + 1) * kAtOnce, batch_.rows.n_rows);
    for (std::int32_t r = block * kAtOnce; r < last; ++r) store_row(r, k, v, q);
  });
  if (q_unrotated == nullptr) return;
  compute_.parallel_for(spec_->n_head, [&](int head) {
    for (QueryEvidence* evidence : batch_.recorders) {
      if (!evidence->wants_moments(batch_.layer)) continue;
      evidence->add_moments(batch_.layer, head, q_unrotated + std::int64_t{head} * spec_->key_dim, spec_->q_size(),
                            batch_.rows.n_rows, batch_.rows.first_position);
    }
  });
}

void RowsAttention::store_row(std::int32_t row, const float* k, const float* v, const float* q) {
  const auto store = [](EntryType type, const float* from, std::byte* to, int n) {
    kernels::store_row(kernels::plain_type(type), from, to, n);
  };
  for (int h = 0; h < spec_->n_kv_head; ++h) {
    const std::int64_t at = std::int64_t{row} * spec_->n_kv_head + h;
    const std::int32_t entry = heads_[static_cast<std::size_t>(h)].n_before + row;
    store(key_type_, k + at * spec_->key_dim, sink_.key_row(h, entry), spec_->key_dim);
    store(value_type_, v + at * spec_->value_dim, sink_.value_row(h, entry), spec_->value_dim);
  }
  const std::int64_t n = spec_->q_size();
  for (QueryEvidence* evidence : batch_.recorders) {
    evidence->record(batch_.layer, batch_.rows.first_position + row, batch_.recorded_end, q + row * n);
  }
  if (batch_.copies.q != nullptr) std::copy_n(q + row * n, n, batch_.copies.q + row * n);
}

void RowsAttention::attend_rows(const float* q, float* out) {
  const int n_blocks = (batch_.rows.n_rows + kernels::kCausalBlockRows - 1) / kernels::kCausalBlockRows;
  const int n_tasks = n_blocks * spec_->n_kv_head;
  std::atomic<int> next_task{0};
  // Each worker has memory of its own. Later blocks attend to more entries, so they are handed out first.
  compute_.parallel_for(static_cast<int>(scratch_.size()), [&](int worker) {
    for (int task = next_task++; task < n_tasks; task = next_task++) {
      attend_block(n_blocks - 1 - task / spec_->n_kv_head, task % spec_->n_kv_head, q, out,
                   scratch_[static_cast<std::size_t>(worker)]);
    }
  });
}

// Computes the attention of a block of rows to the entries of a KV head.
void RowsAttention::attend_block(int block, int kv_head, const float* q, float* out, MappedMemory& scratch) {
  const std::int64_t q_row = spec_->q_size(), out_row = spec_->output_size();
  const int n_group = spec_->n_group();
  const std::int32_t first_row = block * kernels::kCausalBlockRows;
  const EntrySink::Head& head = heads_[static_cast<std::size_t>(kv_head)];
  const kernels::QueryRows rows{
      .q = q + first_row * q_row + std::int64_t{kv_head} * n_group * spec_->key_dim,
      .row_stride = q_row,
      .n_rows = std::min(kernels::kCausalBlockRows, batch_.rows.n_rows - first_row),
      .n_visible = head.n_before + first_row + 1,
      .first_position = batch_.rows.first_position + first_row,
  };
  const bool has_sums = batch_.wants_sums(rows.first_position);
  if (!batch_.is_output_read && !has_sums) return;
  std::vector<float> log_sum_exp(has_sums ? static_cast<std::size_t>(rows.n_rows * n_group) : 0);
  kernels::causal_attention(kernel_shape_.of_head(kv_head), head.entries, rows,
                            {.out = out + first_row * out_row + std::int64_t{kv_head} * n_group * spec_->value_dim,
                             .row_stride = out_row,
                             .log_sum_exp = has_sums ? log_sum_exp.data() : nullptr},
                            {scratch.data(), scratch.bytes()});
  for (std::int32_t r = 0; has_sums && r < rows.n_rows; ++r) {
    const auto save = [&](float* of_row) {
      if (of_row != nullptr) std::copy_n(log_sum_exp.data() + r * n_group, n_group, of_row + kv_head * n_group);
    };
    for (QueryEvidence* evidence : batch_.recorders) {
      save(evidence->log_sum_exp_row(batch_.layer, rows.first_position + r));
    }
    if (float* const copies = batch_.copies.log_sum_exp) save(copies + std::int64_t{first_row + r} * spec_->n_head);
  }
}

}  // namespace winnow
