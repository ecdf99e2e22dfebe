// A model's weights in a device's memory, in the file's own types, and one layer's at a time as bfloat16: with many
// rows a product of converted weights is worth the conversion. Where not all fit, the last layers' matrices stay in the
// machine's memory and share one place on the device, to which a layer's are copied when it is used.
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
  //   n_resident: layers whose matrices are uploaded once and for all, the first ones; -1: all, if they fit, else as
  //               many as leave an eighth of the free memory to the cache and what is computed
  DeviceWeights(device::Device& device, const Model::Impl& model, int n_resident);

  // Returns the tensors; those that are not uploaded are null. The matrices of streamed layers have the same addresses
  // in turns, with their numbers from use() on until another layer's.
  const Weights& stored() const { return weights_; }
  // Returns a layer, and queues the copy of its matrices if it is streamed and was not the one that was used last.
  const LayerWeights& use(int layer);
  bool is_streamed(int layer) const { return layer >= n_resident_; }
  int n_streamed() const { return static_cast<int>(weights_.layers.size()) - n_resident_; }

  // Returns whether all of a layer's matrices can be bfloat16: not where the file has float32.
  bool can_convert(int layer) const;
  // Returns a layer whose matrices are converted to bfloat16, valid until another layer is asked for. Queues
  // the conversion unless it is the layer that was asked for last.
  const LayerWeights& converted(int layer);

  std::size_t bytes() const { return buffer_.bytes() + streamed_.bytes() + converted_.bytes(); }

 private:
  struct ContextDeleter {
    void operator()(ggml_context* context) const;
  };
  using Context = std::unique_ptr<ggml_context, ContextDeleter>;

  // A matrix in the machine's memory and its place on the device.
  struct Streamed {
    const ggml_tensor* from;
    std::byte* to;
  };

  void put(std::byte* to, const ggml_tensor* from);

  device::Device& device_;
  device::Buffer buffer_, streamed_, converted_;
  Context context_, converted_context_;
  Weights weights_;  // on the device; owns what is streamed from
  int n_resident_ = 0;
  std::vector<std::vector<Streamed>> matrices_;  // [layer], of the streamed ones
  int used_layer_ = -1;                          // the streamed layer whose matrices are on the device
  LayerWeights layer_;                           // converted
  int held_layer_ = -1;                          // which layer_ is
};

}  // namespace winnow
