// A model's weights in a device's memory, in the file's own types, and one layer's at a time as bfloat16: with many
// rows a product of converted weights is worth the conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/model_impl.h"
#include "model/weights.h"

namespace winnow {

// Holds tensors that lie in the device's memory. Not thread-safe.
class DeviceWeights {
 public:
  // Uploads all weights of the model but the embeddings that are not its output matrix, too. Throws
  // Error(kOutOfMemory), with what is needed and what is free. Both must outlive this.
  DeviceWeights(device::Device& device, const Model::Impl& model);

  // Returns the tensors; those that are not uploaded are null.
  const Weights& stored() const { return weights_; }
  // Returns whether all of a layer's matrices can be bfloat16: not where the file has float32.
  bool can_convert(int layer) const;
  // Returns a layer whose matrices are converted to bfloat16, valid until another layer is asked for. Queues
  // the conversion unless it is the layer that was asked for last.
  const LayerWeights& converted(int layer);

  std::size_t bytes() const { return buffer_.bytes() + converted_.bytes(); }

 private:
  struct ContextDeleter {
    void operator()(ggml_context* context) const;
  };
  using Context = std::unique_ptr<ggml_context, ContextDeleter>;

  device::Device& device_;
  device::Buffer buffer_, converted_;
  Context context_, converted_context_;
  Weights weights_;
  LayerWeights layer_;   // converted
  int held_layer_ = -1;  // which layer_ is
};

}  // namespace winnow
