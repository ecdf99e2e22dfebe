// A graph in a device's memory: ggml computes the nodes up to each of winnow's own, whose work queues own kernels, then
// ggml goes on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "model/graph_nodes.h"

namespace winnow {

// A graph that can be built anew in the same memory and be run any number of times. Not thread-safe.
class DeviceGraph : public GraphNodes {
 public:
  // The device must outlive the graph.
  DeviceGraph(device::Device& device, std::size_t max_nodes);

  // Returns a leaf whose data lie at an address in the device's memory, [ne0, ne1] of a ggml_type.
  ggml_tensor* external(int type, std::int64_t ne0, std::int64_t ne1, void* data);
  // Gives every node its memory. Throws Error(kOutOfMemory).
  void allocate();
  // Queues the whole graph.
  void run();
  // Returns the bytes that the graph has taken in the device's memory.
  std::size_t bytes() const { return result_bytes(); }

 private:
  device::Device& device_;
  device::Buffer anchor_;  // says whose memory external leaves lie in
};

}  // namespace winnow
