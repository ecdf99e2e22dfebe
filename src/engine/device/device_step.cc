#include "engine/device/device_step.h"

#include <ggml.h>

#include <algorithm>

#include "engine/device/device_executor.h"
#include "engine/device/step_ops.h"
#include "winnow/error.h"

namespace winnow {

namespace {

std::size_t most_nodes(const ModelSpec& spec) {
  std::size_t n = kGraphNodesPerLayer;  // of the logits
  for (const LayerSpec& layer : spec.layers) n += most_graph_nodes(layer.feed_forward);
  return n;
}

// A step that copies weights to the device cannot be recorded. Nor can one with experts that are not quantised: ggml's
// CUDA back end chooses their rows on the processor if there are several rows.
bool can_record(const DeviceWeights& device_weights) {
  const Weights& weights = device_weights.stored();
  return device_weights.n_streamed() == 0 &&
         std::all_of(weights.layers.begin(), weights.layers.end(), [](const LayerWeights& layer) {
           const auto is_recorded = [](const ggml_tensor* experts) {
             return experts == nullptr || ggml_is_quantized(experts->type);
           };
           return is_recorded(layer.gate_experts) && is_recorded(layer.up_experts) && is_recorded(layer.down_experts);
         });
}

}  // namespace

DeviceStep::DeviceStep(DeviceExecutor& executor, int n_sequences)
    : executor_(executor),
      device_(executor.device()),
      n_sequences_(n_sequences),
      can_record_(can_record(executor.weights())),
      graph_(device_, most_nodes(executor.model().spec)) {
  const ModelSpec& spec = executor.model().spec;
  const auto n = static_cast<std::size_t>(n_sequences);
  embedded_.resize(n * static_cast<std::size_t>(spec.n_embd));
  logits_.resize(n * static_cast<std::size_t>(spec.n_vocab));
  hidden_ = device_.allocate(embedded_.size() * sizeof(float));
  positions_ = device_.allocate(n * sizeof(std::int32_t));
  std::size_t n_heads = 0, workspace = 0;
  for (const LayerSpec& layer : spec.layers) {
    first_head_.push_back(n_heads);
    n_heads += n * static_cast<std::size_t>(layer.n_kv_head);
    workspace = std::max(workspace, device::step_workspace_bytes(n_sequences, layer.n_head, layer.value_dim));
  }
  tables_.resize(n_heads);
  heads_ = device_.allocate(n_heads * sizeof(device::HeadTable));
  workspace_ = device_.allocate(workspace);
  device_.fill_zero(workspace_.data(), workspace_.bytes());

  const Weights& weights = executor.weights().stored();
  ggml_tensor* x = graph_.external(GGML_TYPE_F32, spec.n_embd, n_sequences, hidden_.data());
  StepOps ops(device_, graph_);
  GraphBuilder builder(graph_.context(), ops, *this, graph_.external(GGML_TYPE_I32, n_sequences, 1, positions_.data()));
  for (int l = 0; l < spec.n_layer(); ++l) {
    if (executor.weights().is_streamed(l)) {  // its matrices come when the layer's turn has come
      x = graph_.own_in_place(x, x, [&executor, l](ggml_tensor*) { executor.weights().use(l); });
    }
    const auto at = static_cast<std::size_t>(l);
    x = builder.layer(spec.layers[at], weights.layers[at], x);
  }
  logits_tensor_ = builder.logits(spec, weights, x);
  ggml_set_output(logits_tensor_);
  graph_.expand(logits_tensor_);
  graph_.allocate();
}

ggml_tensor* DeviceStep::attend(ggml_context* /*context*/, int layer, ggml_tensor* /*q_unrotated*/, ggml_tensor* q,
                                ggml_tensor* k, ggml_tensor* v) {
  const LayerSpec& spec = executor_.model().spec.layer(layer);
  queries_.resize(executor_.model().spec.layers.size());
  queries_[static_cast<std::size_t>(layer)] = q;
  ggml_set_output(q->view_src != nullptr ? q->view_src : q);  // stays until it is recorded
  std::vector<ggml_tensor*> inputs = {q};
  if (k != nullptr) inputs.insert(inputs.end(), {k, v});
  return graph_.own(GGML_TYPE_F32, spec.output_size(), n_sequences_, inputs, [=, this](ggml_tensor* node) {
    device_.queue(
        device::StepAttention{.layer = executor_.attention(layer, types_.key, types_.value),
                              .q = static_cast<const float*>(q->data),
                              .k = k == nullptr ? nullptr : static_cast<const float*>(k->data),
                              .v = v == nullptr ? nullptr : static_cast<const float*>(v->data),
                              .out = static_cast<float*>(node->data),
                              .heads = heads_.as<device::HeadTable>() + first_head_[static_cast<std::size_t>(layer)],
                              .n_sequences = n_sequences_,
                              .has_codes = types_.has_codes,
                              .workspace = workspace_.data()});
  });
}

ggml_tensor* DeviceStep::recur(ggml_context* /*context*/, int /*layer*/, RecurrentStep /*step*/,
                               std::span<ggml_tensor* const> /*inputs*/) {
  throw Error(ErrorCode::kInternal, "a device got a recurrent layer");
}

StepTypes DeviceStep::types_of(const StepSequence& sequence) {
  const CacheShape& shape = sequence.cache->shape();
  return {.key = kernels::plain_type(shape.key_type),
          .value = kernels::plain_type(shape.value_type),
          .has_codes = shape.has_codes()};
}

std::span<float> DeviceStep::begin(const DecodePlan& plan) {
  sequences_.assign(plan.sequences.begin(), plan.sequences.end());
  const ModelSpec& spec = executor_.model().spec;
  std::vector<std::int32_t> positions;
  for (const StepSequence& sequence : sequences_) positions.push_back(sequence.position);
  device_.upload(positions_.data(), positions.data(), positions.size() * sizeof(std::int32_t));
  StepTypes types = types_of(sequences_.front());
  for (const StepSequence& sequence : sequences_) {
    const StepTypes own = types_of(sequence);
    if (own.key != types.key || own.value != types.value) {
      throw Error(ErrorCode::kUnsupported,
                  "a device cannot step sequences of different entry types together: step them one by one");
    }
    types.has_codes |= own.has_codes;
  }
  set_types(types);
  std::vector<const PageMirror*> mirrors;
  for (const StepSequence& sequence : sequences_) mirrors.push_back(&executor_.mirror(*sequence.cache));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    std::size_t at = first_head_[l];
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      for (int h = 0; h < layer.n_kv_head; ++h) {
        tables_[at++] = mirrors[s]->table(layer.kv_layer, h);
      }
    }
  }
  device_.upload(heads_.data(), tables_.data(), tables_.size() * sizeof(device::HeadTable));
  executor_.embed(plan.tokens, embedded_.data());
  return embedded_;
}

void DeviceStep::set_types(const StepTypes& types) {
  if (types == types_) return;
  types_ = types;
  recording_.reset();
  n_runs_ = 0;
}

std::span<const float> DeviceStep::run() {
  device_.upload(hidden_.data(), embedded_.data(), embedded_.size() * sizeof(float));
  // The first run takes the memory that ggml's back end needs, which a recording cannot.
  if (n_runs_++ == 1 && can_record_) recording_ = device_.record([this] { graph_.run(); });
  if (recording_) {
    recording_->replay();
  } else {
    graph_.run();
  }
  device_.download(logits_.data(), logits_tensor_->data, logits_.size() * sizeof(float));
  record_queries();
  return logits_;
}

void DeviceStep::record_queries() {
  const ModelSpec& spec = executor_.model().spec;
  std::vector<ByteCopy> copies;
  std::vector<int> layers;
  std::size_t bytes = 0;
  for (int l = 0; l < spec.n_layer(); ++l) {
    const auto at = static_cast<std::size_t>(l);
    const bool is_wanted = std::any_of(sequences_.begin(), sequences_.end(), [&](const StepSequence& s) {
      return s.evidence->wants_row(l, s.position, s.position + 1);
    });
    if (!is_wanted || queries_[at] == nullptr) continue;
    const std::size_t of_layer = static_cast<std::size_t>(n_sequences_ * spec.layers[at].q_size()) * sizeof(float);
    copies.push_back({.to = nullptr, .from = static_cast<const std::byte*>(queries_[at]->data), .bytes = of_layer});
    layers.push_back(l);
    bytes += of_layer;
  }
  if (copies.empty()) return;
  grow(device_, gathered_, bytes);
  std::byte* to = gathered_.data();
  for (ByteCopy& copy : copies) to = (copy.to = to) + copy.bytes;
  device_.memory()->copy(copies);
  rows_.resize(bytes / sizeof(float));
  device_.download(rows_.data(), gathered_.data(), bytes);
  const float* row = rows_.data();
  for (const int l : layers) {
    for (const StepSequence& s : sequences_) {
      s.evidence->record(l, s.position, s.position + 1, row);
      row += spec.layer(l).q_size();
    }
  }
}

std::size_t DeviceStep::bytes() const {
  return graph_.bytes() + hidden_.bytes() + positions_.bytes() + heads_.bytes() + workspace_.bytes() +
         gathered_.bytes();
}

}  // namespace winnow
