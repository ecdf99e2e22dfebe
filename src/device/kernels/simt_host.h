// simt.h's functions on this machine's processor, for tests. Threads are fibers, switched at barriers and collectives
// in an order that the queue chooses, so that a kernel that lacks a barrier gives another result in one of the orders.
// Blocks run one after the other, before launch() returns. Misuse that makes a GPU hang or return garbage (a lane that
// does not reach a collective, an address that is not aligned) ends the program with a message.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define WINNOW_KERNEL
#define WINNOW_THREADS(n_threads, n_blocks)
#define WINNOW_DEVICE inline
#define WINNOW_UNROLL
#define WINNOW_NO_UNROLL

namespace winnow::simt {

struct alignas(16) Words4 {
  std::uint32_t x[4];
};

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// The choice of the thread to run among those that can: the first, the last or any. Blocks run in the same order.
enum class ThreadOrder { kAscending, kDescending, kRandom };

struct Queue {
  // Takes the order from WINNOW_THREAD_ORDER: "ascending", "descending" or "random"; ascending if it is not set.
  Queue();
  explicit Queue(ThreadOrder thread_order, std::uint32_t random_seed = 1) : order(thread_order), seed(random_seed) {}

  ThreadOrder order;
  std::uint32_t seed = 1;  // seed of the next launch
};

namespace host {

struct Coordinates {
  int thread;
  int block[3];
  int grid[3];
  int n_threads;
  std::byte* shared;
};
// The coordinates of the running thread. Without constinit every use would call a function that initialises it.
extern constinit thread_local Coordinates here;

enum class Collective : int {
  kBarrier,
  kWarpBarrier,
  kShuffle,
  kShuffleXor,
  kCombine,
  kMmaF16,
  kMmaBf16,
  kLoadMatrix,
  kLoadMatrixTransposed,
  kTransposeMatrix
};

constexpr int kLanes = 32;
constexpr int kInputWords = 10;  // of a lane in a collective, at most
constexpr int kOutputWords = 4;

void run_barrier();
// Begins a collective of the warp: returns the place of this lane's words.
std::uint32_t* begin_collective(Collective kind);
// Waits for the warp's other lanes and computes the collective of all lanes. Returns this lane's words of the result.
const std::uint32_t* end_collective(int n_out);

template <std::size_t n_in, std::size_t n_out>
void run_collective(Collective kind, const std::uint32_t (&in)[n_in], std::uint32_t (&out)[n_out]) {
  std::memcpy(begin_collective(kind), in, sizeof in);
  std::memcpy(out, end_collective(n_out), sizeof out);
}

void start_copy(void* shared_address, const void* global, bool reads);
void commit_copies();
void wait_copies(int n_under_way);

// Aborts the program unless an address is a multiple of n.
void check_aligned(const void* address, std::size_t n = 16);

// Calls body(context) in every thread of the grid.
void run_grid(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*body)(const void*),
              const void* context);

float float_from_f16(std::uint16_t bits);
std::uint16_t f16_from_float(float x);
std::uint16_t bf16_from_float(float x);

template <class T>
T shuffled(Collective kind, T value, int lane_or_mask) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  constexpr int n = sizeof(T) / 4;
  std::uint32_t in[1 + n] = {static_cast<std::uint32_t>(lane_or_mask)};
  std::uint32_t out[n];
  std::memcpy(in + 1, &value, sizeof value);
  run_collective(kind, in, out);
  std::memcpy(&value, out, sizeof value);
  return value;
}

// Computes combine_lanes() of all lanes at once.
template <int kFirst, int kEnd, class T, class Combine>
void combine_all(const std::uint32_t (&in)[kLanes][kInputWords], std::uint32_t (&out)[kLanes][kOutputWords]) {
  T values[kLanes];
  for (int l = 0; l < kLanes; ++l) std::memcpy(&values[l], in[l] + 2, sizeof(T));
  for (int mask = kFirst; mask < kEnd; mask *= 2) {
    T before[kLanes];
    std::copy_n(values, kLanes, before);
    for (int l = 0; l < kLanes; ++l) values[l] = Combine{}(before[l], before[l ^ mask]);
  }
  for (int l = 0; l < kLanes; ++l) std::memcpy(out[l], &values[l], sizeof(T));
}
using CombineAll = void (*)(const std::uint32_t (&in)[kLanes][kInputWords], std::uint32_t (&out)[kLanes][kOutputWords]);

inline void product(Collective kind, float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  std::uint32_t in[10];
  std::memcpy(in, a, sizeof a);
  std::memcpy(in + 4, b, sizeof b);
  std::memcpy(in + 6, d, sizeof d);
  std::uint32_t out[4];
  run_collective(kind, in, out);
  std::memcpy(d, out, sizeof d);
}

inline void matrix_load(Collective kind, std::uint32_t (&r)[4], const void* row_address) {
  check_aligned(row_address);
  const auto address = reinterpret_cast<std::uintptr_t>(row_address);
  std::uint32_t in[2];
  static_assert(sizeof address == sizeof in);
  std::memcpy(in, &address, sizeof in);
  run_collective(kind, in, r);
}

}  // namespace host

inline int thread() { return host::here.thread; }
inline int thread_anew() { return host::here.thread; }
inline int lane() { return host::here.thread % host::kLanes; }
inline int warp() { return host::here.thread / host::kLanes; }
inline int block_x() { return host::here.block[0]; }
inline int block_y() { return host::here.block[1]; }
inline int block_z() { return host::here.block[2]; }
inline int grid_x() { return host::here.grid[0]; }
inline int grid_y() { return host::here.grid[1]; }
inline int grid_z() { return host::here.grid[2]; }
inline int n_threads() { return host::here.n_threads; }
inline std::byte* shared() { return host::here.shared; }

inline void barrier() { host::run_barrier(); }
inline void warp_barrier() {
  host::begin_collective(host::Collective::kWarpBarrier);
  host::end_collective(0);
}

template <int kFirst, int kEnd, class Combine, class T>
T combine_lanes(T value, Combine /*combine*/) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0 && sizeof(T) <= 4 * host::kOutputWords);
  const host::CombineAll function = &host::combine_all<kFirst, kEnd, T, Combine>;
  std::uint32_t in[2 + sizeof(T) / 4];
  std::uint32_t out[sizeof(T) / 4];
  std::memcpy(in, &function, sizeof function);
  std::memcpy(in + 2, &value, sizeof value);
  host::run_collective(host::Collective::kCombine, in, out);
  std::memcpy(&value, out, sizeof value);
  return value;
}

template <class T>
T shuffle(T value, int from_lane) {
  return host::shuffled(host::Collective::kShuffle, value, from_lane);
}
template <class T>
T shuffle_xor(T value, int mask) {
  return host::shuffled(host::Collective::kShuffleXor, value, mask);
}

inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  host::product(host::Collective::kMmaF16, d, a, b);
}
inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  host::product(host::Collective::kMmaBf16, d, a, b);
}

inline void load_matrix(std::uint32_t (&r)[4], const void* row_address) {
  host::matrix_load(host::Collective::kLoadMatrix, r, row_address);
}
inline void load_matrix_transposed(std::uint32_t (&r)[4], const void* row_address) {
  host::matrix_load(host::Collective::kLoadMatrixTransposed, r, row_address);
}

inline std::uint32_t transpose_matrix(std::uint32_t word) {
  const std::uint32_t in[1] = {word};
  std::uint32_t out[1];
  host::run_collective(host::Collective::kTransposeMatrix, in, out);
  return out[0];
}

using SharedAddress = std::byte*;
inline SharedAddress shared_address(std::byte* pointer) { return pointer; }

// The target holds NaNs until the copy is carried out, by the thread's wait_copies.
inline void copy_async_16(void* shared_address, const void* global) { host::start_copy(shared_address, global, true); }
inline void copy_async_16_or_zero(void* shared_address, const void* global, bool reads) {
  host::start_copy(shared_address, global, reads);
}
inline void copy_async_16_at(SharedAddress to, const void* global) { host::start_copy(to, global, true); }
inline void commit_copies() { host::commit_copies(); }
template <int n>
void wait_copies() {
  host::wait_copies(n);
}

inline Words4 load_16(const void* from) {
  host::check_aligned(from);
  Words4 words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
inline void store_16(void* to, const Words4& words) {
  host::check_aligned(to);
  std::memcpy(to, &words, sizeof words);
}

inline Words4 load_shared_16(const void* from) { return load_16(from); }
template <class T>
T load_shared(const std::byte* from) {
  host::check_aligned(from, sizeof(T));
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline std::uint32_t kept(std::uint32_t x) { return x; }
template <class T>
T* pointer_of(std::uint32_t low, std::uint32_t high) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(high) << 32U | low);
}

inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline std::uint32_t pack_f16(float low, float high) {
  return std::uint32_t{host::f16_from_float(low)} | std::uint32_t{host::f16_from_float(high)} << 16U;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return std::uint32_t{host::bf16_from_float(low)} | std::uint32_t{host::bf16_from_float(high)} << 16U;
}
inline float low_f16(std::uint32_t word) { return host::float_from_f16(static_cast<std::uint16_t>(word)); }
inline float high_f16(std::uint32_t word) { return host::float_from_f16(static_cast<std::uint16_t>(word >> 16U)); }
inline std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
  return pack_f16(low_f16(a) * low_f16(b), high_f16(a) * high_f16(b));
}
inline std::uint32_t subtract_f16(std::uint32_t a, std::uint32_t b) {
  return pack_f16(low_f16(a) - low_f16(b), high_f16(a) - high_f16(b));
}
inline float low_bf16(std::uint32_t word) { return float_of(word << 16U); }
inline float high_bf16(std::uint32_t word) { return float_of(word & 0xFFFF0000U); }

inline std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32U | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned which = selector >> (4 * i) & 7U;
    result |= static_cast<std::uint32_t>(bytes >> (8 * which) & 0xFFU) << (8 * i);
  }
  return result;
}

inline std::int32_t dot_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  for (unsigned i = 0; i < 32; i += 8) {
    c += std::int32_t{static_cast<std::int8_t>(a >> i)} * std::int32_t{static_cast<std::int8_t>(b >> i)};
  }
  return c;
}

inline std::int32_t dot_unsigned_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  for (unsigned i = 0; i < 32; i += 8) {
    c += std::int32_t{static_cast<std::uint8_t>(a >> i)} * std::int32_t{static_cast<std::int8_t>(b >> i)};
  }
  return c;
}

inline float exp2(float x) { return std::exp2(x); }
inline float log2(float x) { return std::log2(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float multiply(float a, float b) { return a * b; }
inline std::int32_t nearest(float x) { return static_cast<std::int32_t>(std::nearbyint(x)); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }

inline int atomic_add(int* to, int n) {
  const int old = *to;
  *to = old + n;
  return old;
}
inline void fence() {}
inline void wait_for_previous() {}
inline void let_next_begin() {}

// Returns a number that divides no usual number of slices or heads.
template <class... Parameters>
int resident_blocks(Queue& /*queue*/, int /*n_threads*/, std::size_t /*shared_bytes*/,
                    void (* /*kernel*/)(Parameters...)) {
  return 7;
}

template <class... Parameters, class... Arguments>
void launch(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  const auto call = [&] { kernel(static_cast<Parameters>(arguments)...); };
  using Call = decltype(call);
  host::run_grid(
      queue, grid, n_threads, shared_bytes, [](const void* context) { (*static_cast<const Call*>(context))(); }, &call);
}

template <class... Parameters, class... Arguments>
void launch_overlapping(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*kernel)(Parameters...),
                        const Arguments&... arguments) {
  launch(queue, grid, n_threads, shared_bytes, kernel, arguments...);
}

}  // namespace winnow::simt
