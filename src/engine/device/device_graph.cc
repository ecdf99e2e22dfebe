#include "engine/device/device_graph.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kAnchorBytes = 256;

}  // namespace

DeviceGraph::DeviceGraph(device::Device& device, std::size_t max_nodes)
    : GraphNodes(max_nodes, ggml_backend_get_default_buffer_type(device.backend())),
      device_(device),
      anchor_(device.allocate(kAnchorBytes)) {}

ggml_tensor* DeviceGraph::external(int type, std::int64_t ne0, std::int64_t ne1, void* data) {
  return leaf(type, ne0, ne1, data, anchor_.buffer());
}

void DeviceGraph::allocate() {
  if (!take_memory()) {
    throw Error(ErrorCode::kOutOfMemory,
                "not enough memory on " + device_.info().id + " for the compute buffers: use a smaller batch (-b)");
  }
}

void DeviceGraph::run() {
  run_parts([this](int first, int last) { device_.compute(nodes(), first, last); });
}

}  // namespace winnow
