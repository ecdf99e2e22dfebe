// The thin layer that device kernels are written on: the same source is compiled by nvcc for a GPU and by g++ for
// tests, where a thread is a fiber (simt_host.h). All functions are for use inside kernels, except launch().
//
// Collectives (shuffles, products, load_matrix, warp_barrier) are called by all 32 lanes of a warp, barrier() by all
// threads of a block. n_threads is a multiple of 32.
//
// Fragments of mma_*: lane l has, with r = l / 4 and c = 2 * (l % 4), two 16-bit numbers in each word, the lower column
// (of A) or row (of B) in the low half:
//   A [16][16]: a[0] = A[r][c, c + 1], a[1] = A[r + 8][c, c + 1],
//               a[2] = A[r][c + 8, c + 9], a[3] = A[r + 8][c + 8, c + 9]
//   B [16][8]:  b[0] = B[c, c + 1][r], b[1] = B[c + 8, c + 9][r]
//   D [16][8]:  d[0, 1] = D[r][c, c + 1], d[2, 3] = D[r + 8][c, c + 1]
// load_matrix: lanes 8 i to 8 i + 7 pass the addresses of the eight rows (of eight 16-bit numbers, 16-byte aligned, in
// shared memory) of matrix i; r[i] is then M_i[r][c, c + 1], or M_i[c, c + 1][r] if transposed. transpose_matrix turns
// M[r][c, c + 1] into M[c, c + 1][r] without memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifndef __CUDACC__
#include "device/kernels/simt_host.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define WINNOW_KERNEL __global__
// Gives the threads of a block, and the number of blocks that a multiprocessor must have room for.
#define WINNOW_THREADS(n_threads, n_blocks) __launch_bounds__(n_threads, n_blocks)
#define WINNOW_DEVICE __device__ __forceinline__
#define WINNOW_UNROLL _Pragma("unroll")
#define WINNOW_NO_UNROLL _Pragma("unroll 1")

namespace winnow::simt {

struct Words4 {
  std::uint32_t x[4];
};

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// A queue of kernels. It keeps its first error, which a caller that waits for the queue reports.
struct Queue {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSuccess;
  // True if kernels that launch_overlapping queues begin before the previous one has ended; they call
  // wait_for_previous. It requires a device of compute capability 9.0.
  bool overlaps = false;
};

WINNOW_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
// Returns thread(), read anew, so that values that a loop computes from it are not kept in registers between
// iterations.
WINNOW_DEVICE int thread_anew() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(x));
  return x;
}
WINNOW_DEVICE int lane() { return static_cast<int>(threadIdx.x & 31U); }
WINNOW_DEVICE int warp() { return static_cast<int>(threadIdx.x >> 5U); }
WINNOW_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
WINNOW_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
WINNOW_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
WINNOW_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
WINNOW_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }
WINNOW_DEVICE int grid_z() { return static_cast<int>(gridDim.z); }
WINNOW_DEVICE int n_threads() { return static_cast<int>(blockDim.x); }

// Returns the block's dynamic shared memory, 128-byte aligned.
WINNOW_DEVICE std::byte* shared() {
  extern __shared__ __align__(128) std::byte simt_shared_memory[];
  return simt_shared_memory;
}

WINNOW_DEVICE void barrier() { __syncthreads(); }
WINNOW_DEVICE void warp_barrier() { __syncwarp(); }

// Returns the value of another lane. Values are numbers of 32 or 64 bits.
template <class T>
WINNOW_DEVICE T shuffle(T value, int from_lane) {
  return __shfl_sync(0xFFFFFFFFU, value, from_lane);
}
template <class T>
WINNOW_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}

// Combines the values of lanes whose numbers differ in the bits from kFirst up to below kEnd, lowest bit first: all of
// them get combine(own, other's), step by step. Values consist of words of 32 bits.
template <int kFirst, int kEnd, class Combine, class T>
WINNOW_DEVICE T combine_lanes(T value, Combine combine) {
  constexpr int kWords = sizeof(T) / 4;
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
  WINNOW_UNROLL
  for (int mask = kFirst; mask < kEnd; mask *= 2) {
    std::uint32_t words[kWords];
    memcpy(words, &value, sizeof value);
    WINNOW_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = shuffle_xor(words[i], mask);
    T other;
    memcpy(&other, words, sizeof other);
    value = combine(value, other);
  }
  return value;
}

// Computes d += a b.
WINNOW_DEVICE void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
WINNOW_DEVICE void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

WINNOW_DEVICE void load_matrix(std::uint32_t (&r)[4], const void* row_address) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row_address));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
WINNOW_DEVICE void load_matrix_transposed(std::uint32_t (&r)[4], const void* row_address) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row_address));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

WINNOW_DEVICE std::uint32_t transpose_matrix(std::uint32_t word) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(word));
  return result;
}

// An address in shared memory, in the form that its instructions take; bytes can be added to it.
using SharedAddress = std::uint32_t;
WINNOW_DEVICE SharedAddress shared_address(const std::byte* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Copies 16 aligned bytes to shared memory asynchronously. The thread sees them after wait_copies, other threads after
// a barrier that follows it.
WINNOW_DEVICE void copy_async_16(void* shared_address, const void* global) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared_address));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(__cvta_generic_to_global(global))
               : "memory");
}
// Copies 16 bytes if `reads`; else writes zeros without reading `global`.
WINNOW_DEVICE void copy_async_16_or_zero(void* shared_address, const void* global, bool reads) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared_address));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(__cvta_generic_to_global(global)),
               "r"(reads ? 16 : 0)
               : "memory");
}
// Copies 16 bytes to a known address of shared memory. (A hint that the bytes should leave the second-level cache
// first, L2::cache_hint with a policy of evict_first, is an illegal instruction on an H100.)
WINNOW_DEVICE void copy_async_16_at(SharedAddress to, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(__cvta_generic_to_global(global))
               : "memory");
}
WINNOW_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most the last n groups that the thread committed are still in flight.
template <int n>
WINNOW_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(n) : "memory");
}

// Load and store 16 aligned bytes of the device's memory.
WINNOW_DEVICE Words4 load_16(const void* from) {
  __builtin_assume(__isGlobal(from));
  const uint4 words = *static_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
}
WINNOW_DEVICE void store_16(void* to, const Words4& words) {
  __builtin_assume(__isGlobal(to));
  *static_cast<uint4*>(to) = make_uint4(words.x[0], words.x[1], words.x[2], words.x[3]);
}

// Loads 16 aligned bytes of shared memory at every call: compilers do not keep them in registers between calls.
WINNOW_DEVICE Words4 load_shared_16(const void* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  Words4 words;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(words.x[0]), "=r"(words.x[1]), "=r"(words.x[2]), "=r"(words.x[3])
               : "r"(address)
               : "memory");
  return words;
}
WINNOW_DEVICE Words4 load_shared_16(SharedAddress from) {
  Words4 words;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(words.x[0]), "=r"(words.x[1]), "=r"(words.x[2]), "=r"(words.x[3])
               : "r"(from)
               : "memory");
  return words;
}
// Loads 1, 2, 4 or 8 aligned bytes.
template <class T>
WINNOW_DEVICE T load_shared(SharedAddress from) {
  T value;
  if constexpr (sizeof(T) == 8) {
    std::uint32_t words[2];
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];\n" : "=r"(words[0]), "=r"(words[1]) : "r"(from) : "memory");
    __builtin_memcpy(&value, words, 8);
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(value) : "r"(from) : "memory");
  } else if constexpr (sizeof(T) == 2) {
    asm volatile("ld.shared.b16 %0, [%1];\n" : "=h"(value) : "r"(from) : "memory");
  } else {
    std::int32_t wide;
    asm volatile("ld.shared.s8 %0, [%1];\n" : "=r"(wide) : "r"(from) : "memory");
    value = static_cast<T>(wide);
  }
  return value;
}
// Returns x unchanged. Compilers cannot see that, and keep it in a register.
WINNOW_DEVICE std::uint32_t kept(std::uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
// Returns the address that two words make up.
template <class T>
WINNOW_DEVICE T* pointer_of(std::uint32_t low, std::uint32_t high) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(high) << 32U | low);
}

// Return two numbers packed in a word, rounded to nearest, ties to even. Numbers beyond float16's range become
// infinite.
WINNOW_DEVICE std::uint32_t pack_f16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
WINNOW_DEVICE std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
WINNOW_DEVICE float low_f16(std::uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xFFFFU)));
}
WINNOW_DEVICE float high_f16(std::uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16U)));
}
// Return the products or differences of two pairs of float16 numbers.
WINNOW_DEVICE std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t word;
  asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(word) : "r"(a), "r"(b));
  return word;
}
WINNOW_DEVICE std::uint32_t subtract_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t word;
  asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(word) : "r"(a), "r"(b));
  return word;
}
WINNOW_DEVICE float low_bf16(std::uint32_t word) { return __uint_as_float(word << 16U); }
WINNOW_DEVICE float high_bf16(std::uint32_t word) { return __uint_as_float(word & 0xFFFF0000U); }

// Returns a word whose byte i is the byte of b:a (a has bytes 0 to 3) that bits 4 i to 4 i + 2 of the selector name.
WINNOW_DEVICE std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// Returns c + the products of four pairs of signed bytes.
WINNOW_DEVICE std::int32_t dot_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}
// Returns c + the products of four pairs of bytes, where those of a are unsigned and those of b signed.
WINNOW_DEVICE std::int32_t dot_unsigned_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  std::int32_t sum;
  asm("dp4a.u32.s32 %0, %1, %2, %3;\n" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
WINNOW_DEVICE std::uint32_t bits_of(float x) { return __float_as_uint(x); }
WINNOW_DEVICE float float_of(std::uint32_t bits) { return __uint_as_float(bits); }

// Returns 2^x with an error of 2 units in the last place; 0 for -inf.
WINNOW_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
WINNOW_DEVICE float log2(float x) { return log2f(x); }
WINNOW_DEVICE float tanh(float x) { return tanhf(x); }
WINNOW_DEVICE float sqrt(float x) { return sqrtf(x); }
WINNOW_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
// Returns the product rounded to a float; compilers do not fuse it with an addition.
WINNOW_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
// Returns the nearest whole number, ties to even.
WINNOW_DEVICE std::int32_t nearest(float x) { return __float2int_rn(x); }
WINNOW_DEVICE float max(float a, float b) { return fmaxf(a, b); }
WINNOW_DEVICE float min(float a, float b) { return fminf(a, b); }
WINNOW_DEVICE int max(int a, int b) { return a > b ? a : b; }
WINNOW_DEVICE int min(int a, int b) { return a < b ? a : b; }

// Adds n and returns the old value.
WINNOW_DEVICE int atomic_add(int* to, int n) { return atomicAdd(to, n); }
// Makes the thread's earlier writes visible to every thread of the device that sees one of its later writes.
WINNOW_DEVICE void fence() { __threadfence(); }

// Waits for the previous kernel, whose writes are visible from here on: a kernel that was queued with Queue::overlaps
// may begin before it has ended. All threads call this before they read or write another kernel's data, and before they
// exit.
WINNOW_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
// Lets the next kernel begin, up to its wait_for_previous.
WINNOW_DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Allows a kernel more shared memory than every device grants unasked, before it is launched or counted.
template <class... Parameters>
void allow_shared(Queue& queue, std::size_t shared_bytes, void (*kernel)(Parameters...)) {
  if (queue.error != cudaSuccess || shared_bytes <= 48U * 1024U) return;
  queue.error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
}

// Returns how many blocks of a kernel the device runs at a time.
template <class... Parameters>
int resident_blocks(Queue& queue, int n_threads, std::size_t shared_bytes, void (*kernel)(Parameters...)) {
  int device = 0, n_multiprocessors = 1, n_blocks = 1;
  allow_shared(queue, shared_bytes, kernel);
  if (queue.error == cudaSuccess) queue.error = cudaGetDevice(&device);
  if (queue.error == cudaSuccess) {
    queue.error = cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (queue.error == cudaSuccess) {
    queue.error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, kernel, n_threads, shared_bytes);
  }
  return n_multiprocessors * (n_blocks > 0 ? n_blocks : 1);
}

template <class... Parameters, class... Arguments>
void launch_with(Queue& queue, bool overlaps, Grid grid, int n_threads, std::size_t shared_bytes,
                 void (*kernel)(Parameters...), const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  if (queue.error != cudaSuccess || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  allow_shared(queue, shared_bytes, kernel);
  if (queue.error != cudaSuccess) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.x, grid.y, grid.z);
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  cudaLaunchAttribute attribute = {};
  if (overlaps) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  queue.error = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Queues a kernel. Arguments are trivially copyable structs and numbers, by value.
template <class... Parameters, class... Arguments>
void launch(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  launch_with(queue, false, grid, n_threads, shared_bytes, kernel, arguments...);
}
// Queues a kernel that calls wait_for_previous.
template <class... Parameters, class... Arguments>
void launch_overlapping(Queue& queue, Grid grid, int n_threads, std::size_t shared_bytes, void (*kernel)(Parameters...),
                        const Arguments&... arguments) {
  launch_with(queue, queue.overlaps, grid, n_threads, shared_bytes, kernel, arguments...);
}

}  // namespace winnow::simt
#endif

namespace winnow::simt {

struct Sum {
  template <class T>
  WINNOW_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  WINNOW_DEVICE T operator()(T a, T b) const {
    return max(a, b);
  }
};

// Return the sum and the maximum over the lanes that combine_lanes takes.
template <int kFirst, int kEnd, class T>
WINNOW_DEVICE T sum_lanes(T value) {
  return combine_lanes<kFirst, kEnd>(value, Sum{});
}
template <int kFirst, int kEnd, class T>
WINNOW_DEVICE T max_lanes(T value) {
  return combine_lanes<kFirst, kEnd>(value, Maximum{});
}

}  // namespace winnow::simt
