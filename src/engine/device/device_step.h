// A step of decoding on a device, for a number of sequences: one graph through all layers, built once. All that differs
// from step to step lies in the device's memory, so what the second step queues is recorded, and every later one plays
// the recording.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/device/device_graph.h"
#include "engine/device/page_mirror.h"
#include "engine/executor.h"
#include "model/graph_builder.h"

namespace winnow {

class DeviceExecutor;

// How the entries of a step's sequences are stored.
struct StepTypes {
  EntryType key = EntryType::kF16, value = EntryType::kF16;  // of rows that are no codes
  bool has_codes = false;

  bool operator==(const StepTypes&) const = default;
};

class DeviceStep final : private SequenceHook {
 public:
  // The executor must outlive it. Throws Error(kOutOfMemory).
  DeviceStep(DeviceExecutor& executor, int n_sequences);

  int n_sequences() const { return n_sequences_; }
  // Returns the rows' hidden states [n_sequences][n_embd] in host memory, embedded.
  std::span<float> begin(const DecodePlan& plan);
  // Returns the logits [n_sequences][n_vocab] in host memory, valid until the next step.
  std::span<const float> run();
  std::size_t bytes() const;

 private:
  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;
  ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                     std::span<ggml_tensor* const> inputs) override;
  void record_queries();
  static StepTypes types_of(const StepSequence& sequence);
  // The types of entries are part of what is recorded.
  void set_types(const StepTypes& types);

  DeviceExecutor& executor_;
  device::Device& device_;
  const int n_sequences_;
  const bool can_record_;
  DeviceGraph graph_;
  device::Buffer hidden_, positions_;
  device::Buffer heads_;      // HeadTable of every layer, sequence and KV head
  device::Buffer workspace_;  // of attention
  device::Buffer gathered_;   // queries of all layers on their way to the processor
  StepTypes types_;
  std::vector<std::size_t> first_head_;  // [n_layer], in heads_
  std::vector<ggml_tensor*> queries_;    // [n_layer]
  ggml_tensor* logits_tensor_ = nullptr;
  std::unique_ptr<device::Recording> recording_;
  std::int64_t n_runs_ = 0;
  std::vector<StepSequence> sequences_;
  std::vector<device::HeadTable> tables_;
  std::vector<float> embedded_, logits_, rows_;
};

}  // namespace winnow
