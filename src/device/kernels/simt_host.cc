#include "device/kernels/simt_host.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace winnow::simt {
namespace {

ThreadOrder order_of_environment() {
  const char* name = std::getenv("WINNOW_THREAD_ORDER");
  const std::string_view order = name == nullptr ? "ascending" : name;
  if (order == "descending") return ThreadOrder::kDescending;
  if (order == "random") return ThreadOrder::kRandom;
  return ThreadOrder::kAscending;
}

}  // namespace

Queue::Queue() : order(order_of_environment()) {}

namespace host {
namespace {

constexpr int kPoison = 0xFF;  // NaN as float32, float16 and bfloat16
// Not a power of two: the tops of all fibers' stacks would lie in the same sets of the processor's caches.
constexpr std::size_t kStackBytes = (std::size_t{256} << 10U) + 1088;
constexpr int kCaller = -1;  // the fiber that runs the grid, beside those of its threads

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...) {
  std::fprintf(stderr, "simt: block (%d, %d, %d), thread %d: ", here.block[0], here.block[1], here.block[2],
               here.thread);
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

// The reason why a thread stopped last. Block::can_run says whether it waits.
enum class State { kNew, kAtBarrier, kAtCollective, kDone };

struct PendingCopy {
  void* to;
  const void* from;  // null: zeros
  int group;
};

struct Warp {
  int n_arrived = 0;
  Collective kind = Collective::kBarrier;
  std::uint32_t in[kLanes][kInputWords];
  std::uint32_t out[kLanes][kOutputWords];
};

// A stack allocator that does not free a stack when its fiber ends.
struct BorrowedStack {
  boost::context::stack_context allocate() { std::abort(); }
  void deallocate(boost::context::stack_context& /*stack*/) noexcept {}
};

// A fiber that waits to be resumed.
struct Suspended {
  boost::context::fiber fiber;
  void* fake_stack = nullptr;  // used by AddressSanitizer, as the next two
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
};

struct Thread {
  Suspended self;
  State state = State::kNew;
  std::vector<PendingCopy> copies;
  int n_committed = 0;  // groups of copies
};

// The block that runs on this thread of the operating system.
struct Block {
  int n_threads = 0;
  int n_at_barrier = 0;
  int n_done = 0;
  Queue* queue = nullptr;
  std::mt19937 random;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::uint32_t> can_run;  // [warps] bits of lanes
  void (*body)(const void*) = nullptr;
  const void* context = nullptr;
  Suspended caller;
  int left = kCaller;  // the thread whose fiber ran before the present one
  std::unique_ptr<std::byte[]> stacks;
  std::size_t n_stacks = 0;
};

constinit thread_local Block* block = nullptr;

std::byte* stack_of(int thread) { return block->stacks.get() + static_cast<std::size_t>(thread) * kStackBytes; }

Thread& thread_at(int thread) { return block->threads[static_cast<std::size_t>(thread)]; }

Suspended& suspended(int thread) { return thread == kCaller ? block->caller : thread_at(thread).self; }

// Announces to AddressSanitizer that the running fiber is left for another's; `ends`: and never resumed.
void leave_for([[maybe_unused]] const Suspended& next, [[maybe_unused]] bool ends) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ends ? nullptr : &suspended(block->left).fake_stack, next.stack, next.stack_bytes);
#endif
}

// Takes the fiber that was left for the running one, which is empty if it has ended.
void take_left(boost::context::fiber&& fiber) {
  Suspended& left = suspended(block->left);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(suspended(here.thread).fake_stack, &left.stack, &left.stack_bytes);
#endif
  left.fiber = std::move(fiber);
}

// Makes another thread the running one, and returns its fiber, which the caller resumes.
boost::context::fiber begin_switch(int next, bool ends) {
  block->left = std::exchange(here.thread, next);
  leave_for(suspended(next), ends);
  return std::move(suspended(next).fiber);
}

// Runs another thread, or the caller of the grid, until one comes back to this one.
void run_instead(int next) { take_left(begin_switch(next, false).resume()); }

// Returns the thread to run next. Ends the program if none can.
int next_thread();

boost::context::fiber new_fiber(int thread) {
  boost::context::stack_context stack;
  stack.sp = stack_of(thread) + kStackBytes;
  stack.size = kStackBytes;
  return boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                               BorrowedStack{}, [](boost::context::fiber&& left) {
                                 take_left(std::move(left));
                                 block->body(block->context);
                                 const int me = here.thread;
                                 thread_at(me).state = State::kDone;
                                 block->can_run[static_cast<std::size_t>(me / kLanes)] &= ~(1U << (me % kLanes));
                                 const bool is_last = ++block->n_done == block->n_threads;
                                 return begin_switch(is_last ? kCaller : next_thread(), true);
                               });
}

// Waits in the running thread until another has made it ready.
void wait(State state) {
  const int me = here.thread;
  thread_at(me).state = state;
  block->can_run[static_cast<std::size_t>(me / kLanes)] &= ~(1U << (me % kLanes));
  run_instead(next_thread());
}

// Lets all threads of a warp run.
void release(int warp) { block->can_run[static_cast<std::size_t>(warp)] = ~std::uint32_t{0}; }

int nth_bit(std::uint32_t bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __builtin_ctz(bits);
}

// Ends the program, since no thread can run: names one that waits.
[[noreturn]] void fail_waiting() {
  int i = 0;
  while (thread_at(i).state == State::kDone) ++i;
  here.thread = i;
  fail("waits at a %s to which others never come: %d threads are at a barrier, %d have ended",
       thread_at(i).state == State::kAtBarrier ? "barrier" : "collective", block->n_at_barrier, block->n_done);
}

int next_thread() {
  const auto n_warps = static_cast<int>(block->can_run.size());
  if (block->queue->order == ThreadOrder::kRandom) {
    const auto first = static_cast<int>(block->random() % static_cast<unsigned>(n_warps));
    for (int i = 0; i < n_warps; ++i) {
      const int w = (first + i) % n_warps;
      const std::uint32_t bits = block->can_run[static_cast<std::size_t>(w)];
      if (bits == 0) continue;
      const auto n = static_cast<unsigned>(__builtin_popcount(bits));
      return w * kLanes + nth_bit(bits, static_cast<int>(block->random() % n));
    }
    fail_waiting();
  }
  const bool is_descending = block->queue->order == ThreadOrder::kDescending;
  for (int i = 0; i < n_warps; ++i) {
    const int w = is_descending ? n_warps - 1 - i : i;
    const std::uint32_t bits = block->can_run[static_cast<std::size_t>(w)];
    if (bits != 0) return w * kLanes + (is_descending ? 31 - __builtin_clz(bits) : __builtin_ctz(bits));
  }
  fail_waiting();
}

void run_block() {
  const auto n_warps = static_cast<std::size_t>(block->n_threads / kLanes);
  block->n_at_barrier = 0;
  block->n_done = 0;
  block->can_run.assign(n_warps, ~std::uint32_t{0});
  for (Warp& warp : block->warps) warp.n_arrived = 0;
  for (int i = 0; i < block->n_threads; ++i) {
    Thread& t = thread_at(i);
    t.self = {.fiber = new_fiber(i), .fake_stack = nullptr, .stack = stack_of(i), .stack_bytes = kStackBytes};
    t.state = State::kNew;
    t.copies.clear();
    t.n_committed = 0;
  }
  here.thread = kCaller;
  run_instead(next_thread());
}

const float* f16_table() {
  static const auto table = [] {
    auto floats = std::make_unique<float[]>(1U << 16U);
    for (std::uint32_t h = 0; h < 1U << 16U; ++h) {
      const std::uint32_t sign = (h & 0x8000U) << 16U;
      const std::uint32_t magnitude = h & 0x7FFFU;
      if (magnitude >= 0x7C00U) {
        floats[h] = float_of(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13U);
      } else {
        // Exponent and mantissa at float32's place are the number times 2^-112, subnormals included.
        floats[h] = float_of(bits_of(float_of(magnitude << 13U) * 0x1p+112F) | sign);
      }
    }
    return floats;
  }();
  return table.get();
}

std::uint16_t half_of(std::uint32_t word, int which) { return static_cast<std::uint16_t>(word >> (16 * which)); }

// The numbers of a row of b and d, which are computed together: one after the other they took a third of the time of
// tests with sanitizers.
using EightFloats [[gnu::vector_size(32)]] = float;

template <class ToFloat>
void multiply(Warp& warp, const ToFloat& to_float) {
  float a[16][16];
  EightFloats b[16];
  EightFloats d[16];
  for (int l = 0; l < kLanes; ++l) {
    const std::uint32_t* in = warp.in[l];
    const int r = l / 4;
    const int c = 2 * (l % 4);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) a[r + 8 * (i % 2)][c + 8 * (i / 2) + half] = to_float(half_of(in[i], half));
      for (int i = 0; i < 2; ++i) b[c + 8 * i + half][r] = to_float(half_of(in[4 + i], half));
      for (int i = 0; i < 2; ++i) d[r + 8 * i][c + half] = float_of(in[6 + 2 * i + half]);
    }
  }
  for (int r = 0; r < 16; ++r) {
    EightFloats sum = d[r];
    for (int k = 0; k < 16; ++k) sum += a[r][k] * b[k];
    d[r] = sum;
  }
  for (int l = 0; l < kLanes; ++l) {
    const int r = l / 4;
    const int c = 2 * (l % 4);
    for (int i = 0; i < 4; ++i) warp.out[l][i] = bits_of(d[r + 8 * (i / 2)][c + i % 2]);
  }
}

void load_matrices(Warp& warp, bool is_transposed) {
  std::uint16_t rows[kLanes][8];
  for (int l = 0; l < kLanes; ++l) {
    const void* address = nullptr;
    std::memcpy(&address, warp.in[l], sizeof address);
    std::memcpy(rows[l], address, sizeof rows[l]);
  }
  for (int l = 0; l < kLanes; ++l) {
    const int r = l / 4;
    const int c = 2 * (l % 4);
    for (int i = 0; i < 4; ++i) {
      const std::uint16_t low = is_transposed ? rows[8 * i + c][r] : rows[8 * i + r][c];
      const std::uint16_t high = is_transposed ? rows[8 * i + c + 1][r] : rows[8 * i + r][c + 1];
      warp.out[l][i] = std::uint32_t{low} | std::uint32_t{high} << 16U;
    }
  }
}

void compute(Warp& warp, int n_out) {
  switch (warp.kind) {
    case Collective::kBarrier:
    case Collective::kWarpBarrier:
      return;
    case Collective::kShuffle:
    case Collective::kShuffleXor:
      for (std::uint32_t l = 0; l < kLanes; ++l) {
        const std::uint32_t named = warp.in[l][0];
        const std::uint32_t from = (warp.kind == Collective::kShuffle ? named : named ^ l) % kLanes;
        std::copy_n(warp.in[from] + 1, n_out, warp.out[l]);
      }
      return;
    case Collective::kCombine: {
      CombineAll function = nullptr;
      for (int l = 1; l < kLanes; ++l) {
        if (std::memcmp(warp.in[l], warp.in[0], sizeof function) != 0) fail("combines otherwise than the other lanes");
      }
      std::memcpy(&function, warp.in[0], sizeof function);
      return function(warp.in, warp.out);
    }
    case Collective::kMmaF16: {
      const float* table = f16_table();
      return multiply(warp, [table](std::uint16_t h) { return table[h]; });
    }
    case Collective::kMmaBf16:
      return multiply(warp, [](std::uint16_t h) { return float_of(std::uint32_t{h} << 16U); });
    case Collective::kLoadMatrix:
      return load_matrices(warp, false);
    case Collective::kLoadMatrixTransposed:
      return load_matrices(warp, true);
    case Collective::kTransposeMatrix:
      for (int l = 0; l < kLanes; ++l) {
        const int r = l / 4;
        const int c = 2 * (l % 4);
        // Lane 4 i + j holds columns 2 j and 2 j + 1 of row i.
        const std::uint16_t low = half_of(warp.in[4 * c + r / 2][0], r % 2);
        const std::uint16_t high = half_of(warp.in[4 * (c + 1) + r / 2][0], r % 2);
        warp.out[l][0] = std::uint32_t{low} | std::uint32_t{high} << 16;
      }
      return;
  }
}

}  // namespace

constinit thread_local Coordinates here = {};

void run_barrier() {
  if (++block->n_at_barrier < block->n_threads) return wait(State::kAtBarrier);
  block->n_at_barrier = 0;
  for (int w = 0; w < block->n_threads / kLanes; ++w) release(w);
}

std::uint32_t* begin_collective(Collective kind) {
  Warp& warp = block->warps[static_cast<std::size_t>(here.thread / kLanes)];
  if (warp.n_arrived == 0) warp.kind = kind;
  if (warp.kind != kind) fail("comes to another collective than the warp's other lanes");
  return warp.in[here.thread % kLanes];
}

const std::uint32_t* end_collective(int n_out) {
  const int me = here.thread;
  Warp& warp = block->warps[static_cast<std::size_t>(me / kLanes)];
  if (++warp.n_arrived < kLanes) {
    wait(State::kAtCollective);
  } else {
    compute(warp, n_out);
    warp.n_arrived = 0;
    release(me / kLanes);
  }
  return warp.out[me % kLanes];
}

void check_aligned(const void* address, std::size_t n) {
  if (reinterpret_cast<std::uintptr_t>(address) % n != 0) fail("address %p is not a multiple of %zu", address, n);
}

void start_copy(void* shared_address, const void* global, bool reads) {
  check_aligned(shared_address);
  if (reads) check_aligned(global);
  std::memset(shared_address, kPoison, 16);
  Thread& me = thread_at(here.thread);
  me.copies.push_back({shared_address, reads ? global : nullptr, me.n_committed});
}

void commit_copies() { ++thread_at(here.thread).n_committed; }

void wait_copies(int n_under_way) {
  Thread& me = thread_at(here.thread);
  std::erase_if(me.copies, [&](const PendingCopy& copy) {
    if (copy.group >= me.n_committed - n_under_way) return false;
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
    return true;
  });
}

void run_grid(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*body)(const void*),
              const void* context) {
  if (n_threads <= 0 || n_threads % kLanes != 0 || n_threads > 1024) fail("no block has %d threads", n_threads);
  static thread_local Block own;
  block = &own;
  block->n_threads = n_threads;
  block->queue = &queue;
  block->random.seed(queue.seed++);
  block->body = body;
  block->context = context;
  block->threads.resize(static_cast<std::size_t>(n_threads));
  block->warps.resize(static_cast<std::size_t>(n_threads / kLanes));
  if (block->n_stacks < static_cast<std::size_t>(n_threads)) {
    block->n_stacks = static_cast<std::size_t>(n_threads);
    block->stacks.reset(new std::byte[block->n_stacks * kStackBytes]);  // left uninitialised, so that unused stacks
                                                                        // take no memory
  }
  // Shared memory has exactly the requested size, so that AddressSanitizer finds accesses beyond it.
  std::unique_ptr<std::byte, void (*)(void*)> shared(nullptr, std::free);
  if (shared_bytes > 0) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, shared_bytes) != 0) fail("out of memory");
    shared.reset(static_cast<std::byte*>(memory));
  }
  std::vector<std::uint64_t> blocks(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), std::uint64_t{0});
  if (queue.order == ThreadOrder::kDescending) std::reverse(blocks.begin(), blocks.end());
  if (queue.order == ThreadOrder::kRandom) std::shuffle(blocks.begin(), blocks.end(), block->random);
  for (const std::uint64_t i : blocks) {
    const auto x = static_cast<int>(i % grid.x);
    const auto y = static_cast<int>(i / grid.x % grid.y);
    const auto z = static_cast<int>(i / grid.x / grid.y);
    here = {0,
            {x, y, z},
            {static_cast<int>(grid.x), static_cast<int>(grid.y), static_cast<int>(grid.z)},
            n_threads,
            shared.get()};
    if (shared_bytes > 0) std::memset(shared.get(), kPoison, shared_bytes);
    run_block();
  }
}

float float_from_f16(std::uint16_t bits) { return f16_table()[bits]; }

std::uint16_t f16_from_float(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return 0x7FFFU;
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // Below the smallest normal number: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded.
    return static_cast<std::uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5F) - 0x3F000000U));
  }
  return static_cast<std::uint16_t>(sign | (magnitude + 0xFFFU + (magnitude >> 13U & 1U) - 0x38000000U) >> 13U);
}

std::uint16_t bf16_from_float(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FFFU;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

}  // namespace host
}  // namespace winnow::simt
