// The operations of a prompt's rows on a device: products of bfloat16, whose rows are converted once for all products
// that read them, norms and gates that are made in bfloat16, and sums into the residual stream.
#pragma once

#include "device/device.h"
#include "engine/device/device_graph.h"
#include "model/layer_ops.h"

namespace winnow {

// For layers whose matrices are bfloat16 (DeviceWeights::converted). Makes nodes of one graph.
class PassOps final : public GgmlOps {
 public:
  PassOps(device::Device& device, DeviceGraph& graph) : device_(device), graph_(graph) {}

  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* input_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up) override;
  ggml_tensor* add_product(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y) override;

 private:
  // Returns x [n, n_rows] in bfloat16.
  ggml_tensor* converted(ggml_tensor* x);
  void queue_product(const ggml_tensor* weight, const ggml_tensor* x, const ggml_tensor* y, bool adds);

  device::Device& device_;
  DeviceGraph& graph_;
  ggml_tensor* rows_ = nullptr;  // the rows that were converted last, which the next product may read, too
  ggml_tensor* converted_rows_ = nullptr;
};

}  // namespace winnow
