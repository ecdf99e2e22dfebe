#include "model/graph_nodes.h"

#include <ggml-alloc.h>
#include <ggml.h>

namespace winnow {

void GraphNodes::ContextDeleter::operator()(ggml_context* context) const { ggml_free(context); }
void GraphNodes::AllocatorDeleter::operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }

GraphNodes::GraphNodes(std::size_t max_nodes, ggml_backend_buffer_type* memory)
    : max_nodes_(max_nodes),
      // Every node may bring a leaf and views; twice the tensors leaves room.
      arena_(2 * max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false)),
      allocator_(ggml_gallocr_new(memory)) {
  reset();
}

GraphNodes::~GraphNodes() = default;

void GraphNodes::reset() {
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

bool GraphNodes::take_memory() { return ggml_gallocr_alloc_graph(allocator_.get(), graph_); }

std::size_t GraphNodes::result_bytes() const { return ggml_gallocr_get_buffer_size(allocator_.get(), 0); }

}  // namespace winnow
