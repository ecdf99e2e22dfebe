// What this machine can do at best, measured.
#pragma once

#include <cstddef>
#include <span>

namespace winnow::bench {

// float32 multiply-adds in registers on one thread, two operations each, on the instruction set in use.
double peak_gflops();

// Reading memory that is in no cache, in 10^9 bytes per second, all threads together.
double read_gbytes_per_second(std::span<const std::byte> memory, int n_threads);

}  // namespace winnow::bench
