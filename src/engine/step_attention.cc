#include "engine/step_attention.h"

#include <ggml.h>

#include <algorithm>

#include "engine/rows_attention.h"
#include "kernels/rows.h"

namespace winnow {
namespace {

constexpr std::int32_t kMaxSlices = 32;  // of a head

// Where a head is cut into slices. It depends on the head's own entries alone, so sums are rounded in the same order
// whatever else is in the step and however many threads there are: an answer is the same alone and in any batch.
// Slices end between pages; 64 entries are worth the bookkeeping of a slice, and 32 slices spread the largest head over
// many threads.
std::int32_t slice_entries(std::int32_t n_entries) {
  constexpr std::int32_t kMinEntries = 64;
  const std::int32_t size = std::max(kMinEntries, (n_entries + kMaxSlices - 1) / kMaxSlices);
  return (size + kPageEntries - 1) / kPageEntries * kPageEntries;
}

}  // namespace

StepAttention::StepAttention(const Hparams& hparams, int n_sequences, Compute& compute)
    : hparams_(hparams),
      compute_(compute),
      layers_(static_cast<std::size_t>(hparams.n_layer)),
      done_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(n_sequences * hparams.n_kv_head))) {
  const kernels::AttentionShape shape = attention_shape(hparams_, {});  // scratch is the same for all entry types
  for (int i = 0; i < compute.n_threads(); ++i) {
    workspaces_.push_back({.state = kernels::GroupSoftmaxes(1, hparams.n_group(), hparams.head_dim),
                           .scratch = AlignedBytes(kernels::decode_attention_scratch_bytes(shape))});
  }
  for (int l = 0; l < hparams.n_layer; ++l) {
    layers_[static_cast<std::size_t>(l)].owner = this;
    layers_[static_cast<std::size_t>(l)].layer = l;
  }
}

void StepAttention::plan(std::span<const StepSequence> sequences) {
  sequences_.assign(sequences.begin(), sequences.end());
  for (Layer& layer : layers_) plan_layer(layer);
}

void StepAttention::plan_layer(Layer& layer) {
  const int n_heads = static_cast<int>(sequences_.size()) * hparams_.n_kv_head;
  const int n_threads = compute_.n_threads();
  const auto entries_of = [&](int head) {
    const auto sequence = static_cast<std::size_t>(head / hparams_.n_kv_head);
    return sequences_[sequence].cache->n_entries(layer.layer, head % hparams_.n_kv_head);
  };
  std::int64_t total = 0;
  for (int head = 0; head < n_heads; ++head) total += entries_of(head);

  layer.slices.clear();
  layer.first_slice.assign(1, 0);
  layer.heads.assign(static_cast<std::size_t>(n_heads), {.first_partial = -1, .n_slices = 0});
  std::int64_t before = 0;  // entries planned so far
  for (int head = 0; head < n_heads; ++head) {
    const std::int32_t n = entries_of(head);
    const std::int32_t size = slice_entries(n);
    for (std::int32_t first = 0; first < n; first += size) {
      const std::int32_t last = std::min(n, first + size);
      const std::int64_t middle = 2 * before + (last - first);  // twice where the slice's middle lies among all entries
      while (2 * total * static_cast<std::int64_t>(layer.first_slice.size()) <= middle * n_threads) {
        layer.first_slice.push_back(static_cast<std::int32_t>(layer.slices.size()));
      }
      layer.slices.push_back({.head = head, .first = first, .last = last, .partial = -1});
      ++layer.heads[static_cast<std::size_t>(head)].n_slices;
      before += last - first;
    }
  }
  layer.first_slice.resize(static_cast<std::size_t>(n_threads) + 1, static_cast<std::int32_t>(layer.slices.size()));

  std::int32_t n_partials = 0;
  for (Slice& slice : layer.slices) {
    HeadPlan& plan = layer.heads[static_cast<std::size_t>(slice.head)];
    if (plan.n_slices == 1) continue;
    if (plan.first_partial < 0) plan.first_partial = n_partials;
    slice.partial = n_partials++;
  }
  partials_.resize(static_cast<std::size_t>(n_partials), hparams_.n_group(), hparams_.head_dim);
}

std::size_t StepAttention::bytes() const {
  std::size_t bytes = partials_.bytes();
  for (const Workspace& workspace : workspaces_) bytes += workspace.state.bytes() + workspace.scratch.size();
  return bytes;
}

std::size_t StepAttention::most_partial_bytes(int n_head, int head_dim) {
  return std::size_t{kMaxSlices} * static_cast<std::size_t>(n_head) *
         (sizeof(kernels::SoftmaxState) + static_cast<std::size_t>(head_dim) * sizeof(float));
}

ggml_tensor* StepAttention::attend(ggml_context* context, int layer, ggml_tensor* /*q_unrotated*/, ggml_tensor* q,
                                   ggml_tensor* k, ggml_tensor* v) {
  ggml_tensor* args[3] = {q, k, v};
  return ggml_custom_4d(context, GGML_TYPE_F32, std::int64_t{hparams_.head_dim} * hparams_.n_head, q->ne[2], 1, 1, args,
                        3, run, GGML_N_TASKS_MAX, &layers_[static_cast<std::size_t>(layer)]);
}

void StepAttention::run(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& layer = *static_cast<const Layer*>(userdata);
  try {
    StepAttention& owner = *layer.owner;
    for (int part = ith; part < owner.compute_.n_threads(); part += nth) owner.run_part(layer, dst, part);
  } catch (...) {
    layer.owner->compute_.fail(std::current_exception());
  }
}

void StepAttention::store(const Layer& layer, int head, const ggml_tensor* dst) {
  const int s = head / hparams_.n_kv_head;
  const int kv_head = head % hparams_.n_kv_head;
  const StepSequence& sequence = sequences_[static_cast<std::size_t>(s)];
  RaggedCache& cache = *sequence.cache;
  const std::int32_t entry = cache.n_entries(layer.layer, kv_head) - 1;
  const std::int64_t at = (std::int64_t{s} * hparams_.n_kv_head + kv_head) * hparams_.head_dim;
  const auto* k = static_cast<const float*>(dst->src[1]->data) + at;
  const auto* v = static_cast<const float*>(dst->src[2]->data) + at;
  kernels::store_row(cache.shape().key_type, k, cache.key_row(layer.layer, kv_head, entry), hparams_.head_dim);
  kernels::store_row(cache.shape().value_type, v, cache.value_row(layer.layer, kv_head, entry), hparams_.head_dim);
  if (kv_head == 0) {
    const auto* q =
        static_cast<const float*>(dst->src[0]->data) + std::int64_t{s} * hparams_.n_head * hparams_.head_dim;
    sequence.evidence->record(layer.layer, sequence.position, sequence.position + 1, q);
  }
}

void StepAttention::run_part(const Layer& layer, const ggml_tensor* dst, int part) {
  const auto* q = static_cast<const float*>(dst->src[0]->data);
  auto* out = static_cast<float*>(dst->data);
  const std::int64_t group_floats = std::int64_t{hparams_.n_group()} * hparams_.head_dim;
  Workspace& own = workspaces_[static_cast<std::size_t>(part)];
  const auto first = static_cast<std::size_t>(layer.first_slice[static_cast<std::size_t>(part)]);
  const auto last = static_cast<std::size_t>(layer.first_slice[static_cast<std::size_t>(part) + 1]);
  for (std::size_t i = first; i < last; ++i) {
    const Slice& slice = layer.slices[i];
    const StepSequence& sequence = sequences_[static_cast<std::size_t>(slice.head / hparams_.n_kv_head)];
    const kernels::HeadEntries entries = sequence.cache->entries(layer.layer, slice.head % hparams_.n_kv_head);
    // The slice with the step's own entry is the only one that reads it: its thread writes it first.
    if (slice.last == entries.n_entries) store(layer, slice.head, dst);
    const kernels::AttentionShape shape = attention_shape(hparams_, sequence.cache->shape());
    const HeadPlan& plan = layer.heads[static_cast<std::size_t>(slice.head)];
    const kernels::GroupSoftmax state =
        slice.partial < 0 ? own.state.at(0) : partials_.at(static_cast<std::size_t>(slice.partial));
    kernels::decode_attention(shape,
                              {.q = q + slice.head * group_floats,
                               .entries = entries,
                               .first = slice.first,
                               .last = slice.last,
                               .position = sequence.position},
                              state, own.scratch.span());
    float* head_out = out + slice.head * group_floats;
    if (slice.partial < 0) {
      kernels::finish_attention(shape, state, head_out);
      continue;
    }
    // `done_` counts a head's finished slices; it returns to zero for the next layer.
    std::atomic<int>& done = done_[static_cast<std::size_t>(slice.head)];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == plan.n_slices) {
      done.store(0, std::memory_order_relaxed);
      const auto first_partial = static_cast<std::size_t>(plan.first_partial);
      const kernels::GroupSoftmax whole = partials_.at(first_partial);
      for (int other = 1; other < plan.n_slices; ++other) {
        kernels::merge(shape, whole, partials_.at(first_partial + static_cast<std::size_t>(other)));
      }
      kernels::finish_attention(shape, whole, head_out);
    }
  }
}

}  // namespace winnow
