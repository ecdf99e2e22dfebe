#include "engine/device/device_executor.h"

#include <ggml.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/device/device_pass.h"
#include "engine/output_projection.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// From so many rows on, converting a layer's weights to bfloat16 once takes less time than it saves in products.
constexpr std::int32_t kLeastConverted = 1024;

std::size_t most_nodes_of_a_layer(const ModelSpec& spec) {
  std::size_t most = 0;
  for (const LayerSpec& layer : spec.layers) most = std::max(most, most_graph_nodes(layer.feed_forward));
  return most;
}

}  // namespace

void check_device_model(const Model::Impl& model) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kUnsupported, "models with " + what + " do not run on devices yet: use --device cpu");
  };
  if (model.spec.has_per_layer_embeddings()) refuse("per-layer embeddings");
  for (const LayerSpec& layer : model.spec.layers) {
    if (layer.kind == LayerKind::kRecurrent) refuse("recurrent layers");
    if (layer.latent_rank > 0) refuse("latent attention");
    if (layer.key_dim > 256 || layer.value_dim > 256) refuse("heads larger than 256");
  }
}

void check_device_engine(const EngineOptions& options, const std::string& device) {
  if (options.prefill_weights == PrefillWeights::kF32) {
    throw Error(ErrorCode::kUnsupported,
                device +
                    " multiplies prompts in bf16 or on the file's types, not in f32: prefill with weights auto, "
                    "as-is or bf16, or use --device cpu");
  }
}

void check_device_session(const SessionOptions& options, const std::string& device) {
  const auto is_16_bits = [](EntryType type) { return type == EntryType::kF16 || type == EntryType::kBF16; };
  const bool has_codes = kernels::is_coded(options.key_type) || kernels::is_coded(options.value_type);
  const auto is_stored = [&](EntryType type) {
    return has_codes ? type == EntryType::kF16 || kernels::is_coded(type) : is_16_bits(type);
  };
  if (!is_stored(options.key_type) || !is_stored(options.value_type)) {
    throw Error(ErrorCode::kUnsupported,
                device + " does not store entries of type " + options.stored_key_types() + " (keys) and " +
                    options.stored_value_types() +
                    " (values): use f16, bf16, or codes, alone or with f16 (-ctk, -ctv), or --device cpu");
  }
  if (!has_codes && options.key_type != options.value_type) {
    throw Error(ErrorCode::kUnsupported, device + " stores keys and values in one type: give -ctk and -ctv the same");
  }
}

DeviceExecutor::DeviceExecutor(const Model::Impl& model, std::shared_ptr<device::Device> device,
                               const EngineOptions& options)
    : model_(model),
      device_(std::move(device)),
      compute_(options.n_threads),
      prefill_weights_(options.prefill_weights),
      weights_(*device_, model, options.device_layers),
      graph_(*device_, 2 * most_nodes_of_a_layer(model.spec)) {
  note_bytes();
}

DeviceExecutor::~DeviceExecutor() = default;

void DeviceExecutor::note_bytes() {
  std::size_t bytes = graph_.bytes() + weights_.bytes() + statistics_memory_.bytes();
  if (step_) bytes += step_->bytes();
  bytes_ = bytes;
}

ParallelFor DeviceExecutor::parallel_for() {
  return [this](int n_items, const std::function<void(int)>& body) { compute_.parallel_for(n_items, body); };
}

std::unique_ptr<PassRows> DeviceExecutor::begin_pass(const PassPlan& plan) {
  return std::make_unique<DevicePass>(*this, plan);
}

bool DeviceExecutor::converts_weights(std::int32_t n_rows) const {
  switch (prefill_weights_) {
    case PrefillWeights::kAuto:
      return n_rows >= kLeastConverted;
    case PrefillWeights::kAsIs:
    case PrefillWeights::kInt8:
      return false;
    case PrefillWeights::kFloat:
    case PrefillWeights::kBf16:
    case PrefillWeights::kF32:  // which check_device_engine refuses
      return true;
  }
  return false;
}

device::LayerAttention DeviceExecutor::attention(int layer, EntryType key_type, EntryType value_type) const {
  const LayerSpec& spec = model_.spec.layer(layer);
  const ggml_tensor* sink_logits = weights_.stored().layer(layer).sink_logits;
  return {.n_head = spec.n_head,
          .n_kv_head = spec.n_kv_head,
          .key_dim = spec.key_dim,
          .value_dim = spec.value_dim,
          .key_type = key_type,
          .value_type = value_type,
          .scale = spec.scale,
          .soft_cap = spec.soft_cap,
          .sliding_window = spec.sliding_window,
          .sink_logits = sink_logits == nullptr ? nullptr : static_cast<const float*>(sink_logits->data)};
}

void DeviceExecutor::embed(std::span<const Token> tokens, float* hidden) {
  const auto embed_row = [&](int i) {
    model_.embed(tokens[static_cast<std::size_t>(i)], hidden + std::int64_t{i} * model_.spec.n_embd);
  };
  const auto n = static_cast<int>(tokens.size());
  constexpr int kAlone = 16;  // fewer rows are not worth waking threads
  if (n < kAlone) {
    for (int i = 0; i < n; ++i) embed_row(i);
  } else {
    compute_.parallel_for(n, embed_row);
  }
}

void DeviceExecutor::reserve_step(int n_sequences) {
  if (step_ && step_->n_sequences() == n_sequences) return;
  device_->wait();
  step_.reset();  // its memory may be what the new one needs
  step_ = std::make_unique<DeviceStep>(*this, n_sequences);
  note_bytes();
}

std::span<float> DeviceExecutor::begin_step(const DecodePlan& plan) {
  ++n_steps_;
  constexpr std::int64_t kKept = 256;  // steps for which tables wait for their cache's next one
  std::erase_if(mirrors_, [&](const auto& mirror) { return mirror.second.last_step + kKept < n_steps_; });
  return step_->begin(plan);
}

const PageMirror& DeviceExecutor::mirror(RaggedCache& cache) {
  Mirror& own = mirrors_[&cache];
  own.last_step = n_steps_;
  own.tables.update(*device_, cache);
  return own.tables;
}

std::span<const float> DeviceExecutor::run_step() { return step_->run(); }

void DeviceExecutor::release_step() {
  device_->wait();
  mirrors_.clear();
  step_.reset();
  note_bytes();
}

// Computes what `make` builds of rows of hidden states in the device's memory, and copies it to `out`.
template <class Make>
void DeviceExecutor::run_output(float* hidden, int n_rows, std::span<float> out, const Make& make) {
  graph_.reset();
  GgmlOps ops;
  GraphBuilder builder(graph_.context(), ops);
  ggml_tensor* y = make(builder, graph_.external(GGML_TYPE_F32, model_.spec.n_embd, n_rows, hidden));
  ggml_set_output(y);
  graph_.expand(y);
  graph_.allocate();
  graph_.run();
  device_->download(out.data(), y->data, out.size_bytes());
  note_bytes();
}

void DeviceExecutor::output_logits(float* hidden, int n_rows, float* out) {
  run_output(hidden, n_rows, {out, static_cast<std::size_t>(n_rows * std::int64_t{model_.spec.n_vocab})},
             [&](GraphBuilder& builder, ggml_tensor* x) { return builder.logits(model_.spec, weights_.stored(), x); });
}

void DeviceExecutor::output_hidden(float* hidden, int n_rows, float* out) {
  run_output(
      hidden, n_rows, {out, static_cast<std::size_t>(n_rows * std::int64_t{model_.spec.n_embd})},
      [&](GraphBuilder& builder, ggml_tensor* x) { return builder.output_norm(model_.spec, weights_.stored(), x); });
}

std::vector<float> DeviceExecutor::output_projection(int layer) {
  return output_projection_slices(model_, layer, parallel_for());
}

std::unique_ptr<EntryStatistics> DeviceExecutor::entry_statistics(LayerEntries entries) {
  const int layer = entries.layer;
  // Scorers ask for it from within loops on the executor's threads, too, which must not begin another loop there.
  const auto output_projection = [this, layer] {
    const auto alone = [](int n_items, const std::function<void(int)>& body) {
      for (int i = 0; i < n_items; ++i) body(i);
    };
    return output_projection_slices(model_, layer, alone);
  };
  return std::make_unique<DeviceStatistics>(MeasuredLayer{.device = *device_,
                                                          .memory = statistics_memory_,
                                                          .attention = attention(layer, *entries.shape),
                                                          .w_o = [this, layer] { return weights_.use(layer).wo; },
                                                          .n_embd = model_.spec.n_embd,
                                                          .parallel_for = parallel_for(),
                                                          .output_projection = output_projection},
                                            std::move(entries));
}

}  // namespace winnow
