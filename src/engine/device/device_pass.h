// The rows of a pass in a device's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/device/dequantised_pages.h"
#include "engine/executor.h"
#include "model/graph_builder.h"

namespace winnow {

class DeviceExecutor;

// Runs the rows of one pass on a device.
class DevicePass final : public PassRows, private SequenceHook {
 public:
  // The executor must outlive it. Throws Error(kOutOfMemory).
  DevicePass(DeviceExecutor& executor, const PassPlan& plan);

  void embed(std::int32_t first_row, std::span<const Token> tokens) override;
  void run_layer(const LayerPlan& plan) override;
  // Addresses in the device's memory.
  std::span<float> hidden() override { return {hidden_.as<float>(), hidden_.bytes() / sizeof(float)}; }
  std::size_t bytes() const override { return hidden_.bytes() + kept_.bytes() + dequantised_.bytes(); }
  // Returns the address in the device's memory of queries of the present layer that were kept, from a row on.
  const float* kept_queries(std::int32_t first_row) const;

 private:
  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;
  ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                     std::span<ggml_tensor* const> inputs) override;
  // Uploads where the entries of the present layer lie.
  void show_heads();
  // Queues the present batch's store and attention, and records what its plan asks for.
  void attend_rows(const ggml_tensor* q_unrotated, const ggml_tensor* q, const ggml_tensor* k, const ggml_tensor* v,
                   const ggml_tensor* out);
  void keep_queries(const float* q);
  void record_queries(const float* q);
  const float* gather(const float* q, std::span<const std::int32_t> rows);
  void record_sums();
  void record_moments(const float* q_unrotated);
  // Adds what the device has summed of a layer's moments to the recorders.
  void take_moments();
  float* row(std::int32_t r) const;
  const LayerSpec& spec() const;

  // Sums of the queries of a layer's rows, and of their outer products, on the device.
  struct MomentSums {
    std::int32_t skip = 0;  // positions before it are left out
    std::int32_t end = 0;   // one more than the last position whose row is there
    std::int64_t n = 0;     // rows
    device::Buffer sums{};  // [q_size], then [q_size][key_dim]
  };

  DeviceExecutor& executor_;
  device::Device& device_;
  const PassPlan plan_;
  device::Buffer hidden_;     // [n_rows][n_embd]
  device::Buffer positions_;  // i32 of the present batch
  device::Buffer heads_;      // [n_kv_head] HeadTable of the present layer
  device::Buffer pages_;      // PageRows of all heads, one head after the other
  DequantisedPages dequantised_;
  device::Buffer sums_;  // [rows of a batch][n_head] log-sum-exps
  device::Buffer kept_;  // query rows of the present layer, from first_kept_ on
  std::int32_t first_kept_ = 0;
  device::Buffer gathered_;          // query rows on their way to the processor
  std::vector<MomentSums> moments_;  // of the rows of moments_layer_
  int moments_layer_ = -1;
  LayerPlan batch_;          // the batch and layer that are under way
  std::int32_t n_most_ = 0;  // the most entries of a head of the present layer
  std::vector<float> rows_;  // query rows that came from the device
};

}  // namespace winnow
