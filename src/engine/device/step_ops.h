// The operations of a step's few rows on a device: products at the speed of the memory that the weights lie in, with
// rows in 8 bits that are made once for all products that read them, by the norm or the gate before these.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>

#include "device/device.h"
#include "engine/device/device_graph.h"
#include "model/layer_ops.h"

namespace winnow {

// Makes nodes of one graph; what it has no kernel for are ggml's. The device and the graph must outlive the graph's
// runs, but this need not.
class StepOps final : public GgmlOps {
 public:
  StepOps(device::Device& device, DeviceGraph& graph) : device_(device), graph_(graph) {}

  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) override;
  void products(ggml_context* context, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                std::span<ggml_tensor*> y) override;
  ggml_tensor* input_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up) override;
  ggml_tensor* add_product(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y) override;

 private:
  struct Rows;

  static bool can_multiply(const ggml_tensor* weight, const ggml_tensor* x);
  // Returns a new node for x's rows in both forms, whose float32 view is what `rows_` knows it by.
  std::shared_ptr<Rows> new_rows(ggml_context* context, std::span<ggml_tensor* const> inputs, const ggml_tensor* like,
                                 std::function<void(const Rows&)> queue);
  // Returns what is known of x, with its rows in 8 bits if any of the weights reads these.
  std::shared_ptr<Rows> rows_of(std::span<ggml_tensor* const> weights, ggml_tensor* x);

  device::Device& device_;
  DeviceGraph& graph_;
  std::unordered_map<const ggml_tensor*, std::shared_ptr<Rows>> rows_;
};

}  // namespace winnow
