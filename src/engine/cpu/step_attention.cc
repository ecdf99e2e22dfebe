#include "engine/cpu/step_attention.h"

#include <ggml.h>

#include <algorithm>

#include "engine/attention_shape.h"
#include "kernels/entries/rows.h"

namespace winnow {
namespace {

constexpr std::int32_t kMaxSlices = 16;  // of a head

// Returns the number of entries in each slice of a head. It depends on the head's own entries alone, so sums are
// rounded in the same order whatever else is in the step and however many threads there are: an answer is the same
// alone and in any batch. Slices end between pages. 128 entries are worth the bookkeeping of a slice, and 16 slices
// spread the largest head over many threads.
std::int32_t slice_entries(std::int32_t n_entries) {
  constexpr std::int32_t kMinEntries = 128;
  const std::int32_t size = std::max(kMinEntries, (n_entries + kMaxSlices - 1) / kMaxSlices);
  return (size + kPageEntries - 1) / kPageEntries * kPageEntries;
}

}  // namespace

void plan_step(std::span<const std::int32_t> n_entries, int n_threads, StepPlan& plan) {
  std::int64_t total = 0;
  for (const std::int32_t n : n_entries) total += n;
  plan.slices.clear();
  plan.first_slice.assign(1, 0);
  plan.heads.assign(n_entries.size(), {.first_partial = -1, .n_slices = 0});
  std::int64_t before = 0;  // entries planned so far
  for (std::size_t head = 0; head < n_entries.size(); ++head) {
    const std::int32_t n = n_entries[head];
    const std::int32_t size = slice_entries(n);
    for (std::int32_t first = 0; first < n; first += size) {
      const std::int32_t last = std::min(n, first + size);
      const std::int64_t middle = 2 * before + (last - first);  // twice where the slice's middle lies among all entries
      while (2 * total * static_cast<std::int64_t>(plan.first_slice.size()) <= middle * n_threads) {
        plan.first_slice.push_back(static_cast<std::int32_t>(plan.slices.size()));
      }
      plan.slices.push_back({.head = static_cast<std::int32_t>(head), .first = first, .last = last, .partial = -1});
      ++plan.heads[head].n_slices;
      before += last - first;
    }
  }
  plan.first_slice.resize(static_cast<std::size_t>(n_threads) + 1, static_cast<std::int32_t>(plan.slices.size()));

  plan.n_partials = 0;
  for (StepPlan::Slice& slice : plan.slices) {
    StepPlan::Head& head = plan.heads[static_cast<std::size_t>(slice.head)];
    if (head.n_slices == 1) continue;
    if (head.first_partial < 0) head.first_partial = plan.n_partials;
    slice.partial = plan.n_partials++;
  }
}

StepAttention::StepAttention(const Model::Impl& model, LayerRange range, int n_sequences, Compute& compute)
    : model_(model), compute_(compute), range_(range), layers_(static_cast<std::size_t>(range.size())) {
  int most_heads = 0;
  std::size_t scratch_bytes = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].owner = this;
    layers_[i].layer = range.first + static_cast<int>(i);
    const LayerSpec& s = model_.spec.layer(layers_[i].layer);
    most_heads = std::max(most_heads, s.n_kv_head);
    layers_[i].recurrent = {
        .spec = &s, .weights = &model.weights.layer(layers_[i].layer), .compute = &compute, .sequences = {}};
    if (s.n_kv_head == 0) continue;
    // Scratch is the same for all entry types.
    const kernels::AttentionShape shape = attention_shape(model, layers_[i].layer, EntryType::kF32, EntryType::kF32);
    scratch_bytes = std::max(scratch_bytes, kernels::decode_attention_scratch_bytes(shape));
  }
  done_ = std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(n_sequences * most_heads));
  for (int i = 0; i < compute.n_threads(); ++i) {
    Workspace& workspace = workspaces_.emplace_back(Workspace{.state = {}, .scratch = AlignedBytes(scratch_bytes)});
    for (const Layer& layer : layers_) {
      const LayerSpec& s = model_.spec.layer(layer.layer);
      if (s.n_kv_head > 0) workspace.state.reserve(1, s.n_group(), s.value_dim);
    }
  }
}

void StepAttention::plan(std::span<const StepSequence> sequences) {
  sequences_.assign(sequences.begin(), sequences.end());
  for (Layer& layer : layers_) {
    const LayerSpec& s = model_.spec.layer(layer.layer);
    layer.recurrent.sequences.clear();
    for (std::size_t i = 0; i < sequences_.size() && s.kind == LayerKind::kRecurrent; ++i) {
      const RecurrentState::Update state = sequences_[i].state->update(layer.layer);
      layer.recurrent.sequences.push_back({.state = state, .first_row = static_cast<std::int64_t>(i), .n_rows = 1});
    }
    if (s.n_kv_head == 0) continue;
    n_entries_.clear();
    for (const StepSequence& sequence : sequences_) {
      for (int h = 0; h < s.n_kv_head; ++h) n_entries_.push_back(sequence.cache->n_entries(s.kv_layer, h));
    }
    plan_step(n_entries_, compute_.n_threads(), layer.plan);
    partials_.reserve(static_cast<std::size_t>(layer.plan.n_partials), s.n_group(), s.value_dim);
  }
}

std::size_t StepAttention::bytes() const {
  std::size_t bytes = partials_.bytes();
  for (const Workspace& workspace : workspaces_) bytes += workspace.state.bytes() + workspace.scratch.size();
  return bytes;
}

std::size_t StepAttention::most_partial_bytes(int n_head, int head_dim) {
  return std::size_t{kMaxSlices} * static_cast<std::size_t>(n_head) *
         (sizeof(kernels::SoftmaxState) + static_cast<std::size_t>(head_dim) * sizeof(float) + sizeof(bool));
}

ggml_tensor* StepAttention::attend(ggml_context* context, int layer, ggml_tensor* /*q_unrotated*/, ggml_tensor* q,
                                   ggml_tensor* k, ggml_tensor* v) {
  ggml_tensor* args[3] = {q, k, v};
  return ggml_custom_4d(context, GGML_TYPE_F32, model_.spec.layer(layer).output_size(), q->ne[2], 1, 1, args,
                        k == nullptr ? 1 : 3, run, GGML_N_TASKS_MAX,
                        &layers_[static_cast<std::size_t>(layer - range_.first)]);
}

ggml_tensor* StepAttention::recur(ggml_context* context, int layer, RecurrentStep step,
                                  std::span<ggml_tensor* const> inputs) {
  return recurrent_node(context, layers_[static_cast<std::size_t>(layer - range_.first)].recurrent, step, inputs);
}

void StepAttention::run(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& layer = *static_cast<const Layer*>(userdata);
  StepAttention& owner = *layer.owner;
  owner.compute_.guard([&] {
    for (int part = ith; part < owner.compute_.n_threads(); part += nth) owner.run_part(layer, dst, part);
  });
}

void StepAttention::store(int layer, int head, const ggml_tensor* dst) {
  const LayerSpec& layer_spec = model_.spec.layer(layer);
  const int s = head / layer_spec.n_kv_head;
  const int kv_head = head % layer_spec.n_kv_head;
  const StepSequence& sequence = sequences_[static_cast<std::size_t>(s)];
  RaggedCache& cache = *sequence.cache;
  const std::int32_t entry = cache.n_entries(layer, kv_head) - 1;
  const auto* k = static_cast<const float*>(dst->src[1]->data) + std::int64_t{head} * layer_spec.key_dim;
  const auto* v = static_cast<const float*>(dst->src[2]->data) + std::int64_t{head} * layer_spec.value_dim;
  kernels::store_row(kernels::plain_type(cache.shape().key_type), k, cache.key_row(layer, kv_head, entry),
                     layer_spec.key_dim);
  kernels::store_row(kernels::plain_type(cache.shape().value_type), v, cache.value_row(layer, kv_head, entry),
                     layer_spec.value_dim);
  if (kv_head == 0) {
    const auto* q = static_cast<const float*>(dst->src[0]->data) + std::int64_t{s} * layer_spec.q_size();
    sequence.evidence->record(layer, sequence.position, sequence.position + 1, q);
  }
}

void StepAttention::run_part(const Layer& layer, const ggml_tensor* dst, int part) {
  const auto* q = static_cast<const float*>(dst->src[0]->data);
  auto* out = static_cast<float*>(dst->data);
  const LayerSpec& s = model_.spec.layer(layer.layer);
  const StepPlan& plan = layer.plan;
  Workspace& own = workspaces_[static_cast<std::size_t>(part)];
  const auto partials = [&](std::int32_t first_partial, int n) {
    return partials_.at(static_cast<std::size_t>(first_partial), s.n_group(), s.value_dim, static_cast<std::size_t>(n));
  };
  const auto first = static_cast<std::size_t>(plan.first_slice[static_cast<std::size_t>(part)]);
  const auto last = static_cast<std::size_t>(plan.first_slice[static_cast<std::size_t>(part) + 1]);
  for (std::size_t i = first, next; i < last; i = next) {
    // Consecutive slices of the same head are computed together.
    const StepPlan::Slice& slice = plan.slices[i];
    for (next = i + 1; next < last && plan.slices[next].head == slice.head;) ++next;
    const auto n_slices = static_cast<int>(next - i);
    const std::int32_t end = plan.slices[next - 1].last;
    const StepSequence& sequence = sequences_[static_cast<std::size_t>(slice.head / s.n_kv_head)];
    const int kv_head = slice.head % s.n_kv_head;
    const kernels::HeadEntries entries = sequence.cache->entries(s.kv_layer, kv_head);
    // Only the slice with the step's own entry reads it in this layer, so its thread writes it first.
    if (s.owns_entries() && end == entries.n_entries) store(layer.layer, slice.head, dst);
    const CacheShape& types = sequence.cache->shape();
    const kernels::AttentionShape shape =
        attention_shape(model_, layer.layer, types.key_type, types.value_type).of_head(kv_head);
    const StepPlan::Head& head = plan.heads[static_cast<std::size_t>(slice.head)];
    const kernels::GroupSoftmax states =
        slice.partial < 0 ? own.state.at(0, s.n_group(), s.value_dim) : partials(slice.partial, n_slices);
    kernels::decode_attention(shape,
                              {.q = q + std::int64_t{slice.head} * s.n_group() * s.key_dim,
                               .entries = entries,
                               .first = slice.first,
                               .last = end,
                               .size = slice.last - slice.first,
                               .position = sequence.position},
                              states, own.scratch.span());
    float* head_out = out + std::int64_t{slice.head} * s.n_group() * s.value_dim;
    if (slice.partial < 0) {
      kernels::finish_attention(shape, states, head_out);
      continue;
    }
    // `done_` counts a head's finished slices; it returns to zero for the next layer.
    std::atomic<int>& done = done_[static_cast<std::size_t>(slice.head)];
    if (done.fetch_add(n_slices, std::memory_order_acq_rel) + n_slices == head.n_slices) {
      done.store(0, std::memory_order_relaxed);
      const kernels::GroupSoftmax whole = partials(head.first_partial, 1);
      for (int other = 1; other < head.n_slices; ++other) {
        kernels::merge(shape, whole, partials(head.first_partial + other, 1));
      }
      kernels::finish_attention(shape, whole, head_out);
    }
  }
}

}  // namespace winnow
