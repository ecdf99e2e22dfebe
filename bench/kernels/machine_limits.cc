#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine_limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

#include "machine_limits.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains hide the latency of a multiply-add. Returns the number of operations.
double multiply_add(std::int64_t n, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, sink[0]);
  hn::Vec<decltype(d)> sums[12];
#pragma GCC unroll 16
  for (auto& sum : sums) sum = x;
  for (std::int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = hn::MulAdd(sum, x, x);
  }
  for (int c = 1; c < 12; ++c) sums[0] = hn::Add(sums[0], sums[c]);
  sink[1] = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  return 2.0 * 12.0 * static_cast<double>(n) * static_cast<double>(hn::Lanes(d));
}

void read_all(const std::byte* memory, std::size_t bytes, std::uint32_t* sink) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t step = 4 * hn::Lanes(d);
  const auto* p = reinterpret_cast<const std::uint32_t*>(memory);
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  for (std::size_t i = 0; i + step <= bytes / sizeof(*p); i += step) {
    a = hn::Or(a, hn::Or(hn::LoadU(d, p + i), hn::LoadU(d, p + i + hn::Lanes(d))));
    b = hn::Or(b, hn::Or(hn::LoadU(d, p + i + 2 * hn::Lanes(d)), hn::LoadU(d, p + i + 3 * hn::Lanes(d))));
  }
  *sink = hn::GetLane(hn::Or(a, b));
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::bench {
namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

HWY_EXPORT(multiply_add);
HWY_EXPORT(read_all);

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double peak_gflops() {
  float sink[2] = {1e-3F, 0.0F};
  double best = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double start = cpu_seconds();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(10'000'000, sink);
    best = std::max(best, operations / (cpu_seconds() - start) / 1e9);
  }
  volatile float keep = sink[1];
  (void)keep;
  return best;
}

double read_gbytes_per_second(std::span<const std::byte> memory, int n_threads) {
  double best = 0;
  const std::size_t part = memory.size() / static_cast<std::size_t>(n_threads);
  for (int repetition = 0; repetition < 5; ++repetition) {
    std::vector<std::uint32_t> sinks(static_cast<std::size_t>(n_threads) * 64);
    const double seconds = seconds_of([&] {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < static_cast<std::size_t>(n_threads); ++t) {
        threads.emplace_back([&, t] {
          HWY_DYNAMIC_DISPATCH(read_all)(memory.data() + t * part, part, &sinks[t * 64]);
        });
      }
    });
    volatile std::uint32_t keep = sinks[0];
    (void)keep;
    best = std::max(best, static_cast<double>(memory.size()) / seconds / 1e9);
  }
  return best;
}

}  // namespace winnow::bench
#endif
