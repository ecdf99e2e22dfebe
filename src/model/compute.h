// ggml's threads and compute buffers: runs graphs and plain loops on the same thread team.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

struct ggml_backend_buffer;
struct ggml_cgraph;
struct ggml_context;
struct ggml_gallocr;
struct ggml_tensor;

namespace winnow {

// A graph with the memory of its nodes; can be run any number of times. Not thread-safe.
class Graph {
 public:
  explicit Graph(std::size_t max_nodes);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Forgets all nodes; memory is kept for the next build.
  void reset();
  ggml_context* context() const { return context_.get(); }
  // A leaf whose data is the caller's, [ne0, ne1] of a ggml_type.
  ggml_tensor* external(int type, std::int64_t ne0, std::int64_t ne1, void* data);
  // Adds the node and what it depends on.
  void expand(ggml_tensor* node);
  // Gives every node its memory. Throws Error(kOutOfMemory).
  void allocate();
  // What the graph has taken, externals not counted.
  std::size_t bytes() const;

 private:
  friend class Compute;
  struct ContextDeleter {
    void operator()(ggml_context* context) const;
  };
  struct AllocatorDeleter {
    void operator()(ggml_gallocr* allocator) const;
  };
  struct BufferDeleter {
    void operator()(ggml_backend_buffer* buffer) const;
  };
  std::size_t max_nodes_;
  std::vector<std::byte> arena_;
  std::unique_ptr<ggml_context, ContextDeleter> context_;
  ggml_cgraph* graph_ = nullptr;
  std::unique_ptr<ggml_gallocr, AllocatorDeleter> allocator_;
  alignas(64) std::array<std::byte, 64> anchor_{};
  std::unique_ptr<ggml_backend_buffer, BufferDeleter> borrowed_;  // "somebody else's memory"
};

// The machine's physical cores that this process may use, at least 1.
int default_thread_count();

// Not thread-safe: one computation at a time.
class Compute {
 public:
  explicit Compute(int n_threads);
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Most threads that run a graph. On a machine with other work it is fewer (active_threads.h), so a custom node that
  // has a plan for n_threads() parts may get any smaller number nth of threads: thread ith takes parts ith, ith + nth,
  // ...
  int n_threads() const { return n_threads_; }

  // Runs the graph. An exception that a custom node let out (guard) is rethrown.
  void run(Graph& graph);

  // body(i) for every i in [0, n_items) on the threads, handed out one by one.
  void parallel_for(int n_items, const std::function<void(int)>& body);

  // What products have read of experts' matrices: bytes of weights, as often as they were read.
  std::uint64_t expert_bytes_read() const { return expert_bytes_read_; }
  void count_expert_bytes(std::uint64_t n) { expert_bytes_read_ += n; }  // from any thread

  // For custom nodes: exceptions must not cross ggml's threads. Keeps the first one of body() for run() to throw.
  void guard(auto&& body) noexcept {
    try {
      body();
    } catch (...) {
      fail(std::current_exception());
    }
  }

 private:
  void fail(std::exception_ptr error) noexcept;

  struct Impl;
  int n_threads_;
  std::atomic<std::uint64_t> expert_bytes_read_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
