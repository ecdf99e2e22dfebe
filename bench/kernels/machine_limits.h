// The measured limits of this machine.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/simd/isa.h"

namespace winnow::bench {

// Returns the processor time of the calling program, over all threads. The peak rates are measured by it, since other
// programs may use the processor too.
double cpu_seconds();

// Returns the rate of float32 multiply-adds in registers on one thread, two operations each, in the instruction set in
// use.
double peak_gflops();

// Returns the rate of bfloat16 products in registers or tiles on one thread, two operations each, or 0 without a unit.
double peak_bf16_gflops(kernels::Bf16Unit unit);

// Returns the rate of dot products of 8-bit integers in registers on one thread, two operations each, or 0 without
// instructions for them.
double peak_int8_gops(kernels::Int8Unit unit);

// Returns the rate of reading memory that is in no cache, in 10^9 bytes per second, all threads together.
double read_gbytes_per_second(std::span<const std::byte> memory, int n_threads);

}  // namespace winnow::bench
