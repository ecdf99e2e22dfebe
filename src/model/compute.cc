#include "model/compute.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/active_threads.h"
#include "winnow/error.h"

namespace winnow {

Graph::Graph(std::size_t max_nodes)
    : GraphNodes(max_nodes, ggml_backend_cpu_buffer_type()),
      borrowed_(ggml_backend_cpu_buffer_from_ptr(&anchor_, sizeof(anchor_))) {}

ggml_tensor* Graph::external(int type, std::int64_t ne0, std::int64_t ne1, void* data) {
  return leaf(type, ne0, ne1, data, borrowed_.get());
}

void Graph::allocate() {
  if (!take_memory()) {
    throw Error(ErrorCode::kOutOfMemory, "not enough memory for the compute buffers: use a smaller batch (-b)");
  }
}

std::size_t Graph::bytes() const { return node_bytes() + result_bytes(); }

int default_thread_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// A meter of the process's use of the processor while graphs run one after the other.
class LoadMeter {
 public:
  explicit LoadMeter(int n_threads) : active_(n_threads) {}

  int n_threads() const { return active_.count(); }

  void begin() {
    // Time in which no graph ran says nothing about the machine.
    if (Clock::now() - last_end_ > std::chrono::milliseconds(2)) start_ = read();
  }

  void end() {
    last_end_ = Clock::now();
    if (last_end_ - start_.time < std::chrono::milliseconds(25)) return;
    const Reading now = read();
    active_.add({.wall_s = std::chrono::duration<double>(now.time - start_.time).count(),
                 .cpu_s = now.cpu_s - start_.cpu_s,
                 .preemptions = now.preemptions - start_.preemptions});
    start_ = now;
  }

 private:
  struct Reading {
    Clock::time_point time;
    double cpu_s = 0;
    long preemptions = 0;
  };

  static Reading read() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {Clock::now(), seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nivcsw};
  }

  ActiveThreads active_;
  Reading start_;
  Clock::time_point last_end_;
};

// Throws Error(kOutOfMemory) if the system does not start so many threads, in which case GNU OpenMP would end the
// process. Each host thread has a team of its own, which starts with its first graph; this starts as many threads
// before.
void require_threads(int n_threads) {
  thread_local int n_started = 1;
  if (n_threads <= n_started) return;
  std::atomic<bool> all_there{false};
  std::vector<std::thread> threads;
  const auto end = [&] {
    all_there = true;
    all_there.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    threads.reserve(static_cast<std::size_t>(n_threads));
    for (int i = 1; i < n_threads; ++i) threads.emplace_back([&] { all_there.wait(false); });
  } catch (const std::exception&) {
    const std::size_t n = threads.size() + 1;
    end();
    throw Error(ErrorCode::kOutOfMemory, "the operating system started only " + std::to_string(n) + " of " +
                                             std::to_string(n_threads) +
                                             " threads: use fewer (-t), or raise the limits of address space and of "
                                             "processes (ulimit -v, ulimit -u)");
  }
  end();
  n_started = n_threads;
}

}  // namespace

struct Compute::Impl {
  explicit Impl(int n_threads) : load(n_threads) {}

  LoadMeter load;
  ggml_threadpool* pool = nullptr;
  std::vector<std::uint8_t> work;
  std::mutex mutex;  // guards `error`: several threads may fail at once
  std::exception_ptr error;

  // The loop that parallel_for runs, as a graph of one node.
  Graph loop{4};
  float loop_output = 0;

  // Returns a graph of some of a graph's nodes, valid until the next one is asked for.
  ggml_cgraph* part_of(ggml_cgraph* whole, int first, int last) {
    const auto n = static_cast<std::size_t>(last - first);
    const std::size_t bytes = ggml_graph_overhead_custom(n, false) + ggml_tensor_overhead();
    if (part_memory.size() < bytes) part_memory.resize(bytes);
    part.reset(ggml_init({.mem_size = part_memory.size(), .mem_buffer = part_memory.data(), .no_alloc = true}));
    ggml_cgraph* nodes = ggml_new_graph_custom(part.get(), n, false);
    for (int i = first; i < last; ++i) ggml_graph_add_node(nodes, ggml_graph_node(whole, i));
    return nodes;
  }

  std::vector<std::byte> part_memory;
  ggml_context_ptr part;
};

namespace {

// Runs in every thread of the team.
void run_loop(ggml_tensor* /*dst*/, int /*ith*/, int /*nth*/, void* userdata) {
  (*static_cast<std::function<void()>*>(userdata))();
}

}  // namespace

Compute::Compute(int n_threads) : n_threads_(n_threads), impl_(std::make_unique<Impl>(n_threads)) {
  ggml_cpu_init();
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  params.poll = 0;  // without OpenMP ggml's threads would spin for a second after every graph
  impl_->pool = ggml_threadpool_new(&params);
}

Compute::~Compute() { ggml_threadpool_free(impl_->pool); }

void Compute::run(Graph& graph) {
  require_threads(n_threads_);
  graph.run_parts([&](int first, int last) {
    const bool is_whole = first == 0 && last == ggml_graph_n_nodes(graph.nodes());
    run_nodes(is_whole ? graph.nodes() : impl_->part_of(graph.nodes(), first, last));
  });
}

// Runs a graph of which ggml computes all nodes.
void Compute::run_nodes(ggml_cgraph* nodes) {
  if (n_threads_ > 1) impl_->load.begin();
  ggml_cplan plan = ggml_graph_plan(nodes, impl_->load.n_threads(), impl_->pool);
  if (impl_->work.size() < plan.work_size) impl_->work.resize(plan.work_size);
  plan.work_data = impl_->work.data();
  const ggml_status status = ggml_graph_compute(nodes, &plan);
  if (n_threads_ > 1) impl_->load.end();
  if (impl_->error) {
    const std::exception_ptr error = std::exchange(impl_->error, nullptr);
    std::rethrow_exception(error);
  }
  if (status != GGML_STATUS_SUCCESS) {
    throw Error(ErrorCode::kInternal, std::string("ggml could not compute a graph: ") + ggml_status_to_string(status));
  }
}

void Compute::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->error) impl_->error = std::move(error);
}

void Compute::parallel_for(int n_items, const std::function<void(int)>& body) {
  if (n_items <= 0) return;
  if (n_items == 1) return body(0);  // waking the team takes longer than many a body
  std::atomic<int> next{0};
  std::function<void()> loop = [&] {
    try {
      for (int i = next.fetch_add(1); i < n_items; i = next.fetch_add(1)) body(i);
    } catch (...) {
      next = n_items;
      fail(std::current_exception());
    }
  };
  Graph& graph = impl_->loop;
  graph.reset();
  ggml_tensor* none[1] = {nullptr};
  ggml_tensor* node =
      ggml_custom_4d(graph.context(), GGML_TYPE_F32, 1, 1, 1, 1, none, 0, run_loop, GGML_N_TASKS_MAX, &loop);
  node->data = &impl_->loop_output;
  graph.expand(node);
  run(graph);
}

}  // namespace winnow
