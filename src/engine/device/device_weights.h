// A model's weights in a device's memory, in the file's own types, and one layer's at a time as bfloat16: with many
// rows a product of converted weights is worth the conversion. Where not all fit, the last layers' matrices stay in the
// machine's memory and take turns in two places on the device: while a layer computes, the next one's are copied.
#pragma once

#include <ggml-cpp.h>

#include <array>
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
  static constexpr std::size_t kSlots = 2;  // in which streamed layers take turns; one if there is no room for two

  // Uploads all weights of the model but the embeddings that are not its output matrix, too. Throws
  // Error(kOutOfMemory), with what is needed and what is free. Both must outlive this.
  //   n_resident: layers whose matrices are uploaded once and for all, the first ones; -1: all, if they leave a 32nd of
  //               the free memory to the cache and what is computed, else as many as leave an eighth
  DeviceWeights(device::Device& device, const Model::Impl& model, int n_resident);

  // Returns the tensors; those that are not uploaded are null. The matrices of streamed layers have the same addresses
  // in turns, with their numbers for what is queued between use() of the layer and of another one.
  const Weights& stored() const { return weights_; }
  // Returns a layer. If it is streamed, what is queued from now on waits for its matrices, and the copy of the next
  // layer's begins. Throws Error(kInternal) if the device failed to copy.
  const LayerWeights& use(int layer);
  bool is_streamed(int layer) const { return layer >= n_resident_; }
  int n_streamed() const { return static_cast<int>(weights_.layers.size()) - n_resident_; }

  // Returns whether all of a layer's matrices can be bfloat16: not where the file has float32.
  bool can_convert(int layer) const;
  // Returns a layer whose matrices are converted to bfloat16, valid until another layer is asked for. Queues
  // the conversion unless it is the layer that was asked for last.
  const LayerWeights& converted(int layer);

  std::size_t bytes() const { return buffer_.bytes() + slots_[0].bytes() + slots_[1].bytes() + converted_.bytes(); }

 private:
  // A matrix in the machine's memory and its place on the device.
  struct Streamed {
    const ggml_tensor* from;
    std::byte* to;
  };

  std::size_t slot_of(int streamed_layer) const {
    return static_cast<std::size_t>(streamed_layer - n_resident_) % n_slots_;
  }
  void fetch(int streamed_layer);
  void await_upload();

  device::Device& device_;
  device::Buffer buffer_, converted_;
  std::array<device::Buffer, kSlots> slots_;  // of streamed layers' matrices
  std::size_t n_slots_ = kSlots;
  ggml_context_ptr context_, converted_context_;
  Weights weights_;  // on the device; owns what is streamed from
  int n_resident_ = 0;
  std::vector<std::vector<Streamed>> matrices_;  // [layer], of the streamed ones
  std::array<int, kSlots> in_slot_{-1, -1};     // the layers whose matrices are in the slots, or are being copied there
  std::unique_ptr<device::SideUpload> upload_;  // that runs; ends before the slots do
  int uploaded_layer_ = -1;                     // by it
  LayerWeights layer_;                          // converted
  int held_layer_ = -1;                         // which layer_ is
};

}  // namespace winnow
