// What this machine can do at best, measured.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/simd/isa.h"

namespace winnow::bench {

// Of the calling program, all threads: what it computes is measured by this, since others may use the processor too.
double cpu_seconds();

// float32 multiply-adds in registers on one thread, two operations each, on the instruction set in use.
double peak_gflops();

// Products of bfloat16 in registers or tiles on one thread, two operations each; 0 without a unit for them.
double peak_bf16_gflops(kernels::Bf16Unit unit);

// Dot products of 8-bit integers in registers on one thread, two operations each; 0 without instructions for them.
double peak_int8_gops(kernels::Int8Unit unit);

// Reading memory that is in no cache, in 10^9 bytes per second, all threads together.
double read_gbytes_per_second(std::span<const std::byte> memory, int n_threads);

}  // namespace winnow::bench
