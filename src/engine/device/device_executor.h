// The executor of a device: ggml's graphs on the device's back end, cut at attention, where winnow's own kernels store
// and attend. Keys, values and hidden states lie in the device's memory; of what it computes only logits and the
// queries that scorers ask for come back.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "engine/device/device_graph.h"
#include "engine/device/device_statistics.h"
#include "engine/device/device_step.h"
#include "engine/device/device_weights.h"
#include "engine/device/page_mirror.h"
#include "engine/executor.h"
#include "model/compute.h"
#include "model/model_impl.h"
#include "winnow/session.h"

namespace winnow {

// Throws Error(kUnsupported) for a model that devices do not compute yet, with what it is.
void check_device_model(const Model::Impl& model);
// Likewise for an engine's options: products of numbers that devices do not multiply.
void check_device_engine(const EngineOptions& options, const std::string& device);
// Likewise for a session's options: entries of types that no kernel reads.
void check_device_session(const SessionOptions& options, const std::string& device);

// Computes on a device. Thread-safety is that of Executor.
class DeviceExecutor final : public Executor {
 public:
  // Uploads the weights. Throws Error(kOutOfMemory). The model must outlive the executor.
  DeviceExecutor(const Model::Impl& model, std::shared_ptr<device::Device> device, const EngineOptions& options);
  ~DeviceExecutor() override;

  ParallelFor parallel_for() override;
  std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) override;
  bool converts_weights(std::int32_t n_rows) const override;
  void reserve_step(int n_sequences) override;
  std::span<float> begin_step(const DecodePlan& plan) override;
  std::span<const float> run_step() override;
  void release_step() override;
  void output_logits(float* hidden, int n_rows, float* out) override;
  void output_hidden(float* hidden, int n_rows, float* out) override;
  std::vector<float> output_projection(int layer) override;
  bool keeps_queries() const override { return true; }
  std::unique_ptr<EntryStatistics> entry_statistics(LayerEntries entries) override;
  int n_streamed_layers() const override { return weights_.n_streamed(); }
  std::size_t bytes() const override { return bytes_; }

  // The parts that passes and steps share.
  const Model::Impl& model() const { return model_; }
  device::Device& device() { return *device_; }
  DeviceWeights& weights() { return weights_; }
  DeviceGraph& graph() { return graph_; }
  Compute& compute() { return compute_; }
  // Writes the embeddings of tokens to `hidden` [n_tokens][n_embd] in host memory, times the model's embedding scale.
  void embed(std::span<const Token> tokens, float* hidden);
  // Returns a cache's page tables in the device's memory, brought up to date.
  const PageMirror& mirror(RaggedCache& cache);
  // Return how kernels attend in a layer whose entries have these types, or are stored in this shape: in its plain
  // types where they are no codes.
  device::LayerAttention attention(int layer, EntryType key_type, EntryType value_type) const;
  device::LayerAttention attention(int layer, const CacheShape& shape) const {
    return attention(layer, kernels::plain_type(shape.key_type), kernels::plain_type(shape.value_type));
  }

 private:
  template <class Make>
  void run_output(float* hidden, int n_rows, std::span<float> out, const Make& make);
  void note_bytes();

  const Model::Impl& model_;
  const std::shared_ptr<device::Device> device_;
  Compute compute_;  // for loops on the processor
  const PrefillWeights prefill_weights_;
  DeviceWeights weights_;
  DeviceGraph graph_;
  StatisticsMemory statistics_memory_;
  std::unique_ptr<DeviceStep> step_;  // the one that was reserved last
  // The caches that have taken steps of late, by address: a cache that is new at an old address says so.
  struct Mirror {
    PageMirror tables = {};
    std::int64_t last_step = 0;
  };
  std::unordered_map<const RaggedCache*, Mirror> mirrors_;
  std::int64_t n_steps_ = 0;
  std::atomic<std::size_t> bytes_ = 0;
};

}  // namespace winnow
