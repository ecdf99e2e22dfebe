#include "model/graph_nodes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace winnow {
namespace {

// ggml computes no node of winnow's own: a graph is run in parts that leave it out.
void never_run(ggml_tensor* /*dst*/, int /*ith*/, int /*nth*/, void* /*userdata*/) {}
void never_run_2(ggml_tensor* /*dst*/, const ggml_tensor* /*a*/, const ggml_tensor* /*b*/, int /*ith*/, int /*nth*/,
                 void* /*userdata*/) {}

}  // namespace

GraphNodes::GraphNodes(std::size_t max_nodes, ggml_backend_buffer_type* memory)
    : max_nodes_(max_nodes),
      memory_(memory),
      // Every node may bring a leaf and views; twice the tensors leaves room.
      arena_(2 * max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false)),
      allocator_(ggml_gallocr_new(memory)) {
  reset();
}

GraphNodes::~GraphNodes() = default;

void GraphNodes::reset() {
  own_.clear();
  context_.reset();
  ggml_init_params params{};
  params.mem_size = arena_.size();
  params.mem_buffer = arena_.data();
  params.no_alloc = true;
  context_.reset(ggml_init(params));
  graph_ = ggml_new_graph_custom(context_.get(), max_nodes_, false);
}

void GraphNodes::expand(ggml_tensor* node) { ggml_build_forward_expand(graph_, node); }

ggml_tensor* GraphNodes::leaf(int type, std::int64_t ne0, std::int64_t ne1, void* data, ggml_backend_buffer* in) {
  ggml_tensor* tensor = ggml_new_tensor_2d(context_.get(), static_cast<ggml_type>(type), ne0, ne1);
  tensor->data = data;  // the allocator leaves tensors alone that have data
  tensor->buffer = in;
  return tensor;
}

ggml_tensor* GraphNodes::own(int type, std::int64_t ne0, std::int64_t ne1, std::span<ggml_tensor* const> inputs,
                             std::function<void(ggml_tensor*)> work) {
  std::vector<ggml_tensor*> args(inputs.begin(), inputs.end());
  ggml_tensor* node = ggml_custom_4d(context(), static_cast<ggml_type>(type), ne0, ne1, 1, 1, args.data(),
                                     static_cast<int>(args.size()), never_run, 1, nullptr);
  own_.push_back({.node = node, .work = std::move(work)});
  return node;
}

ggml_tensor* GraphNodes::own_in_place(ggml_tensor* x, ggml_tensor* input, std::function<void(ggml_tensor*)> work) {
  ggml_tensor* node = ggml_map_custom2_inplace(context(), x, input, never_run_2, 1, nullptr);
  own_.push_back({.node = node, .work = std::move(work)});
  return node;
}

bool GraphNodes::take_memory() {
  // Every graph is planned anew. Without that, ggml would follow the last graph's plan where it has the same nodes, but
  // not the same inputs of our own nodes: it takes views, as unrotated queries are, for inputs that need no memory.
  if (!ggml_gallocr_reserve(allocator_.get(), graph_) || !ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
    // The allocator has noted what it planned, and would follow the plan for the next graph that needs no more memory.
    allocator_.reset(ggml_gallocr_new(memory_));
    return false;
  }
  if (own_.empty()) return true;
  std::unordered_map<const ggml_tensor*, int> index_of;
  for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) index_of.emplace(ggml_graph_node(graph_, i), i);
  for (Own& own : own_) own.index = index_of.at(own.node);
  std::sort(own_.begin(), own_.end(), [](const Own& a, const Own& b) { return a.index < b.index; });
  return true;
}

void GraphNodes::run_parts(const std::function<void(int, int)>& compute) const {
  int first = 0;
  for (const Own& own : own_) {
    if (own.index > first) compute(first, own.index);
    own.work(own.node);
    first = own.index + 1;
  }
  if (const int end = ggml_graph_n_nodes(graph_); end > first) compute(first, end);
}

std::size_t GraphNodes::result_bytes() const { return ggml_gallocr_get_buffer_size(allocator_.get(), 0); }

}  // namespace winnow
