// ggml's threads and compute buffers, on which graphs and plain loops run with the same thread team.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "model/graph_nodes.h"

namespace winnow {

// A graph with the memory of its nodes. It can be run any number of times. Not thread-safe.
class Graph : public GraphNodes {
 public:
  explicit Graph(std::size_t max_nodes);

  // Returns a leaf whose data is the caller's, [ne0, ne1] of a ggml_type.
  ggml_tensor* external(int type, std::int64_t ne0, std::int64_t ne1, void* data);
  // Gives every node its memory. Throws Error(kOutOfMemory).
  void allocate();
  // Returns the bytes that the graph has taken, external leaves not counted.
  std::size_t bytes() const;

 private:
  friend class Compute;
  alignas(64) std::array<std::byte, 64> anchor_{};
  ggml_backend_buffer_ptr borrowed_;  // marks external leaves' memory as not ggml's
};

// Returns the number of the machine's physical cores that this process may use, at least 1.
int default_thread_count();

// The thread team. Not thread-safe: it runs one computation at a time.
class Compute {
 public:
  explicit Compute(int n_threads);
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Returns the most threads that run a graph. On a machine with other work fewer do (active_threads.h). A custom node
  // that has a plan for n_threads() parts may thus get any smaller number nth of threads: thread ith then takes parts
  // ith, ith + nth, ...
  int n_threads() const { return n_threads_; }

  // Runs the graph: ggml's nodes on the threads, and the work of winnow's own, which may run loops on them
  // (parallel_for), on the calling thread. Rethrows the first exception of a custom node (guard) or of that work.
  void run(Graph& graph);

  // Runs body(i) for every i in [0, n_items) on the threads, handed out one by one.
  void parallel_for(int n_items, const std::function<void(int)>& body);

  // Returns the bytes of experts' weights that products have read, each as often as it was read.
  std::uint64_t expert_bytes_read() const { return expert_bytes_read_; }
  void count_expert_bytes(std::uint64_t n) { expert_bytes_read_ += n; }  // may be called from any thread

  // Calls body() in a custom node, whose exceptions must not cross ggml's threads: the first one is kept for run() to
  // throw.
  void guard(auto&& body) noexcept {
    try {
      body();
    } catch (...) {
      fail(std::current_exception());
    }
  }

 private:
  void run_nodes(ggml_cgraph* nodes);
  void fail(std::exception_ptr error) noexcept;

  struct Impl;
  int n_threads_;
  std::atomic<std::uint64_t> expert_bytes_read_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
