// A graph of ggml's nodes in a device's memory, with nodes of winnow's own between them: ggml computes the nodes up to
// each of these, then the device's queue gets the own kernels' work, then ggml goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/graph_nodes.h"

namespace winnow {

// A graph that can be built anew in the same memory and be run any number of times. Not thread-safe.
class DeviceGraph : public GraphNodes {
 public:
  // The device must outlive the graph.
  DeviceGraph(device::Device& device, std::size_t max_nodes);

  // Forgets all nodes; their memory is kept for the next build.
  void reset();
  // Returns a leaf whose data lie at an address in the device's memory, [ne0, ne1] of a ggml_type.
  ggml_tensor* external(int type, std::int64_t ne0, std::int64_t ne1, void* data);
  // Returns a node [ne0, ne1] of these inputs, which `queue` computes: it is called in its turn of every run.
  ggml_tensor* own(int type, std::int64_t ne0, std::int64_t ne1, std::span<ggml_tensor* const> inputs,
                   std::function<void(ggml_tensor* node)> queue);
  // Returns such a node that takes x's place and memory.
  ggml_tensor* own_in_place(ggml_tensor* x, ggml_tensor* input, std::function<void(ggml_tensor* node)> queue);
  // Gives every node its memory. Throws Error(kOutOfMemory).
  void allocate();
  // Queues the whole graph.
  void run();
  // Returns the bytes that the graph has taken in the device's memory.
  std::size_t bytes() const { return result_bytes(); }

 private:
  struct Own {
    ggml_tensor* node;
    std::function<void(ggml_tensor*)> queue;
    int index = -1;  // among the graph's nodes
  };

  device::Device& device_;
  device::Buffer anchor_;  // says whose memory external leaves lie in
  std::vector<Own> own_;   // in the order of the nodes once the graph is allocated
};

}  // namespace winnow
