#include "engine/device/device_graph.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kAnchorBytes = 256;

// No back end computes a node of winnow's own: the graph is run in parts that leave it out.
void never_run(ggml_tensor* /*dst*/, int /*ith*/, int /*nth*/, void* /*userdata*/) {}
void never_run_2(ggml_tensor* /*dst*/, const ggml_tensor* /*a*/, const ggml_tensor* /*b*/, int /*ith*/, int /*nth*/,
                 void* /*userdata*/) {}

}  // namespace

DeviceGraph::DeviceGraph(device::Device& device, std::size_t max_nodes)
    : GraphNodes(max_nodes, ggml_backend_get_default_buffer_type(device.backend())),
      device_(device),
      anchor_(device.allocate(kAnchorBytes)) {}

void DeviceGraph::reset() {
  own_.clear();
  GraphNodes::reset();
}

ggml_tensor* DeviceGraph::external(int type, std::int64_t ne0, std::int64_t ne1, void* data) {
  return leaf(type, ne0, ne1, data, anchor_.buffer());
}

ggml_tensor* DeviceGraph::own(int type, std::int64_t ne0, std::int64_t ne1, std::span<ggml_tensor* const> inputs,
                              std::function<void(ggml_tensor*)> queue) {
  std::vector<ggml_tensor*> args(inputs.begin(), inputs.end());
  ggml_tensor* node = ggml_custom_4d(context(), static_cast<ggml_type>(type), ne0, ne1, 1, 1, args.data(),
                                     static_cast<int>(args.size()), never_run, 1, nullptr);
  own_.push_back({.node = node, .queue = std::move(queue)});
  return node;
}

ggml_tensor* DeviceGraph::own_in_place(ggml_tensor* x, ggml_tensor* input, std::function<void(ggml_tensor*)> queue) {
  ggml_tensor* node = ggml_map_custom2_inplace(context(), x, input, never_run_2, 1, nullptr);
  own_.push_back({.node = node, .queue = std::move(queue)});
  return node;
}

void DeviceGraph::allocate() {
  if (!take_memory()) {
    throw Error(ErrorCode::kOutOfMemory,
                "not enough memory on " + device_.info().id + " for the compute buffers: use a smaller batch (-b)");
  }
  std::unordered_map<const ggml_tensor*, int> index_of;
  for (int i = 0; i < ggml_graph_n_nodes(nodes()); ++i) index_of.emplace(ggml_graph_node(nodes(), i), i);
  for (Own& own : own_) own.index = index_of.at(own.node);
  std::sort(own_.begin(), own_.end(), [](const Own& a, const Own& b) { return a.index < b.index; });
}

void DeviceGraph::run() {
  int first = 0;
  for (const Own& own : own_) {
    if (own.index > first) device_.compute(nodes(), first, own.index);
    own.queue(own.node);
    first = own.index + 1;
  }
  if (const int end = ggml_graph_n_nodes(nodes()); end > first) device_.compute(nodes(), first, end);
}

}  // namespace winnow
