// Features of compute capability 9.0 (architecture sm_90a) beyond simt.h: barriers in shared memory, and products of
// matrices in shared memory by warpgroups, i.e. four warps of which the first has a number divisible by four. Only nvcc
// compiles this header; kernels have code if the macro __CUDA_ARCH_FEAT_SM90_ALL is defined.
//
// Matrices of 16-bit numbers lie in blocks of 64 columns, row after row of 128 bytes, each block from an address
// divisible by 1,024 on. The 16-byte words of a row are permuted: word w of row r is in place w ^ r % 8, so that eight
// words of a column lie in different banks. PTX calls this the 128-byte swizzle.
#pragma once

#ifdef __CUDACC__
#include <cstddef>
#include <cstdint>

#include "device/kernels/simt.h"

namespace winnow::device::warpgroup {

inline constexpr int kRowBytes = 128;
inline constexpr int kBlockColumns = kRowBytes / 2;
inline constexpr int kBlockAlignment = 1024;

// Returns the offset of the 16-byte word `word` of a row in a matrix whose blocks are block_bytes apart.
constexpr __host__ __device__ int word_offset(int row, int word, int block_bytes) {
  return (word >> 3) * block_bytes + row * kRowBytes + (((word ^ row) & 7) << 4);
}

WINNOW_DEVICE std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Initialises a barrier that passes each time `n` arrivals have come; its phases count from 0.
WINNOW_DEVICE void init_barrier(std::uint32_t barrier, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(n) : "memory");
}
WINNOW_DEVICE void arrive(std::uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(barrier) : "memory");
}
// Arrives when the copies that the thread has begun by copy_async are complete.
WINNOW_DEVICE void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
WINNOW_DEVICE bool has_passed(std::uint32_t barrier, int phase) {
  std::uint32_t has;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(has)
               : "r"(barrier), "r"(phase & 1)
               : "memory");
  return has != 0;
}
// Waits until phase `phase` has passed; it must not be older than the one before the current phase. A wait of seconds
// is an error of the kernel, which then ends with a store to a null address instead of a hang. (In a kernel with
// `trap`, nvcc 13 gives no thread more registers than the equal share.)
WINNOW_DEVICE void wait(std::uint32_t barrier, int phase) {
  if (has_passed(barrier, phase)) return;
  constexpr long long kMostCycles = 1LL << 33;
  const long long begin = clock64();
  while (!has_passed(barrier, phase)) {
    if (clock64() - begin > kMostCycles) asm volatile("st.global.u32 [%0], %1;\n" ::"l"(0ULL), "r"(0) : "memory");
  }
}

// Waits at barrier `name` of the block, with n threads in all. simt::barrier uses 0.
WINNOW_DEVICE void sync_threads(int name, int n) { asm volatile("bar.sync %0, %1;\n" ::"r"(name), "r"(n) : "memory"); }
WINNOW_DEVICE void arrive_of_threads(int name, int n) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(name), "r"(n) : "memory");
}

template <int n>
WINNOW_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(n));
}
template <int n>
WINNOW_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(n));
}

WINNOW_DEVICE void copy_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}
WINNOW_DEVICE void copy_async_16_or_zero(std::uint32_t to, const void* from, bool reads) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(reads ? 16 : 0)
               : "memory");
}
WINNOW_DEVICE void wait_for_all_copies() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

// Makes writes to shared memory that the thread can see visible to the products that it begins next.
WINNOW_DEVICE void fence_for_products() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// Products are begun, committed in groups and waited for. fence_registers comes before the first product and after
// writes to registers that products read or add to. A product's registers must not be accessed before the wait for its
// group; see_sums then makes the compiler assume that they have changed.
WINNOW_DEVICE void fence_registers() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
WINNOW_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int n>
WINNOW_DEVICE void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(n) : "memory");
}
template <int n>
WINNOW_DEVICE void see_sums(float (&sums)[n]) {
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Returns a matrix's descriptor for instructions: its address and, in units of 16 bytes, the distance of the blocks
// (`leading`) and of eight rows (`stride`); the upper two bits select the swizzle. Offsets in units of 16 bytes may be
// added.
WINNOW_DEVICE std::uint64_t matrix_at(std::uint32_t address, int block_bytes) {
  constexpr std::uint64_t kSwizzle128 = 1;
  const std::uint64_t leading = static_cast<std::uint64_t>(block_bytes >> 4) & 0x3FFF;
  constexpr std::uint64_t kStride = 8 * kRowBytes >> 4;
  return (static_cast<std::uint64_t>(address >> 4) & 0x3FFF) | leading << 16 | kStride << 32 | kSwizzle128 << 62;
}
// Return the offset of 16 columns, number `step`, in a matrix, and of 16 rows.
constexpr __host__ __device__ std::uint64_t columns_offset(int step, int block_bytes) {
  return static_cast<std::uint64_t>((step / 4 * block_bytes + step % 4 * 32) >> 4);
}
constexpr __host__ __device__ std::uint64_t rows_offset(int step) {
  return static_cast<std::uint64_t>((step * 16 * kRowBytes) >> 4);
}

// clang-format off
#define WINNOW_SUMS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                       "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WINNOW_SUMS_48 WINNOW_SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WINNOW_SUMS_64 WINNOW_SUMS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WINNOW_EIGHT(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                           "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define WINNOW_OUT_32(d) WINNOW_EIGHT(d, 0), WINNOW_EIGHT(d, 8), WINNOW_EIGHT(d, 16), WINNOW_EIGHT(d, 24)
#define WINNOW_OUT_48(d) WINNOW_OUT_32(d), WINNOW_EIGHT(d, 32), WINNOW_EIGHT(d, 40)
#define WINNOW_OUT_64(d) WINNOW_OUT_48(d), WINNOW_EIGHT(d, 48), WINNOW_EIGHT(d, 56)
// A product with both factors in shared memory, whose rows lie along the summed dimension. With n sums in a thread, %n
// and the next operands are the factors and a flag that adds the product to the sums instead of replacing them.
#define WINNOW_PRODUCT(n, columns, type, a, b, adds)                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" adds ", 0;\n"                                \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type              \
               " {" WINNOW_SUMS_##n "}, %" a ", %" b ", p, 1, 1, 0, 0;\n}\n"                     \
               : WINNOW_OUT_##n(sums) : "l"(left), "l"(right), "r"(adds_to_sums) : "memory")
// A product with the left factor in registers; the right factor's columns lie where its rows do above.
#define WINNOW_PRODUCT_OF_REGISTERS(n, columns, type, a0, a1, a2, a3, b)                        \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type              \
               " {" WINNOW_SUMS_##n "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b ", 1, 1, 1, 1;\n" \
               : WINNOW_OUT_##n(sums) : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right) : "memory")

// Begins sums += left right^T, or sums = left right^T if !adds_to_sums: left is 64 rows and right n * 2 rows of 16
// numbers. A thread's sums are those of mma_f16's D, for rows from 16 * (warp % 4) on, one group of eight columns after
// the other.
template <bool is_bf16, int n>
WINNOW_DEVICE void begin_product(float (&sums)[n], std::uint64_t left, std::uint64_t right, int adds_to_sums) {
  static_assert(n == 32 || n == 48 || n == 64);
  if constexpr (n == 32) {
    if constexpr (is_bf16) WINNOW_PRODUCT(32, "64", "bf16", "32", "33", "34");
    else WINNOW_PRODUCT(32, "64", "f16", "32", "33", "34");
  } else if constexpr (n == 48) {
    if constexpr (is_bf16) WINNOW_PRODUCT(48, "96", "bf16", "48", "49", "50");
    else WINNOW_PRODUCT(48, "96", "f16", "48", "49", "50");
  } else {
    if constexpr (is_bf16) WINNOW_PRODUCT(64, "128", "bf16", "64", "65", "66");
    else WINNOW_PRODUCT(64, "128", "f16", "64", "65", "66");
  }
}
// Begins sums += left right: left is 64 rows of 16 numbers, each warp's 16 rows as mma_f16's A, and right is 16 rows of
// n * 2 numbers.
template <bool is_bf16, int n>
WINNOW_DEVICE void begin_product(float (&sums)[n], const std::uint32_t (&left)[4], std::uint64_t right) {
  static_assert(n == 32 || n == 48 || n == 64);
  if constexpr (n == 32) {
    if constexpr (is_bf16) WINNOW_PRODUCT_OF_REGISTERS(32, "64", "bf16", "32", "33", "34", "35", "36");
    else WINNOW_PRODUCT_OF_REGISTERS(32, "64", "f16", "32", "33", "34", "35", "36");
  } else if constexpr (n == 48) {
    if constexpr (is_bf16) WINNOW_PRODUCT_OF_REGISTERS(48, "96", "bf16", "48", "49", "50", "51", "52");
    else WINNOW_PRODUCT_OF_REGISTERS(48, "96", "f16", "48", "49", "50", "51", "52");
  } else {
    if constexpr (is_bf16) WINNOW_PRODUCT_OF_REGISTERS(64, "128", "bf16", "64", "65", "66", "67", "68");
    else WINNOW_PRODUCT_OF_REGISTERS(64, "128", "f16", "64", "65", "66", "67", "68");
  }
}
#undef WINNOW_PRODUCT_OF_REGISTERS
#undef WINNOW_PRODUCT
#undef WINNOW_OUT_64
#undef WINNOW_OUT_48
#undef WINNOW_OUT_32
#undef WINNOW_EIGHT
#undef WINNOW_SUMS_64
#undef WINNOW_SUMS_48
#undef WINNOW_SUMS_32
// clang-format on

}  // namespace winnow::device::warpgroup
#endif
