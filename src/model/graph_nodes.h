// The nodes of a ggml graph, with nodes of winnow's own between them, and the memory of their results: what graphs for
// the processor and for devices share.
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace winnow {

// The nodes and their memory. Not thread-safe.
class GraphNodes {
 public:
  GraphNodes(const GraphNodes&) = delete;
  GraphNodes& operator=(const GraphNodes&) = delete;

  // Forgets all nodes; their memory is kept for the next build.
  void reset();
  ggml_context* context() const { return context_.get(); }
  // Adds a node and all nodes on which it depends.
  void expand(ggml_tensor* node);
  // Return a node of winnow's own, whose numbers `work` makes of the inputs: a run calls it in the node's turn. The
  // first is [ne0, ne1] of a ggml_type, the second takes x's place and memory.
  ggml_tensor* own(int type, std::int64_t ne0, std::int64_t ne1, std::span<ggml_tensor* const> inputs,
                   std::function<void(ggml_tensor* node)> work);
  ggml_tensor* own_in_place(ggml_tensor* x, ggml_tensor* input, std::function<void(ggml_tensor* node)> work);

 protected:
  // Results will lie in memory of this type.
  GraphNodes(std::size_t max_nodes, ggml_backend_buffer_type* memory);
  ~GraphNodes();

  // Returns a leaf [ne0, ne1] of a ggml_type whose data lie outside the graph's memory. `in` is a buffer of the memory
  // where they do, which views of the leaf need.
  ggml_tensor* leaf(int type, std::int64_t ne0, std::int64_t ne1, void* data, ggml_backend_buffer* in);
  // Gives every node its memory. Returns false if there is not enough; smaller graphs may then be built.
  bool take_memory();
  // Runs all nodes in order: own ones do their work, and compute(first, last) is called for ggml's between them.
  void run_parts(const std::function<void(int first, int last)>& compute) const;
  ggml_cgraph* nodes() const { return graph_; }
  // Return the bytes of the nodes themselves and of their results.
  std::size_t node_bytes() const { return arena_.size(); }
  std::size_t result_bytes() const;

 private:
  struct Own {
    ggml_tensor* node;
    std::function<void(ggml_tensor*)> work;
    int index = -1;  // among the graph's nodes
  };

  std::size_t max_nodes_;
  ggml_backend_buffer_type* memory_;
  std::vector<std::byte> arena_;
  ggml_context_ptr context_;
  ggml_gallocr_ptr allocator_;
  ggml_cgraph* graph_ = nullptr;
  std::vector<Own> own_;  // in the order of the nodes once they have memory
};

}  // namespace winnow
