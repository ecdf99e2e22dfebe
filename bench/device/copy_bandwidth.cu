// copy_bandwidth measures how fast this GPU copies within its memory (bytes read and written together) and between its
// memory and the process's pinned memory. Kernels that are bound by memory are compared with these numbers. Prints
// lines "NAME GB/s".
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <functional>

#include "device_array.h"
#include "timing.h"

namespace {

using namespace winnow;
using bench::check;
using bench::DeviceArray;

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr int kRuns = 15;

// Returns the median of several runs, in seconds.
double median_seconds(const std::function<void()>& work) {
  const auto run = [&](int) { work(); };
  return 1e-6 * bench::median_us(nullptr, kRuns, run, /*n_warm=*/0);
}

void report(const char* name, std::size_t bytes, double seconds) {
  std::printf("%s %.0f\n", name, static_cast<double>(bytes) / seconds / 1e9);
}

}  // namespace

int main() {
  const DeviceArray<std::byte> from(kBytes), to(kBytes);
  void* pinned;
  check(cudaMallocHost(&pinned, kBytes / 4));
  from.fill(1);
  report("copy_within", 2 * kBytes,
         median_seconds([&] { check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice)); }));
  report("copy_to_device", kBytes / 4,
         median_seconds([&] { check(cudaMemcpyAsync(to.data(), pinned, kBytes / 4, cudaMemcpyHostToDevice)); }));
  report("copy_from_device", kBytes / 4,
         median_seconds([&] { check(cudaMemcpyAsync(pinned, from.data(), kBytes / 4, cudaMemcpyDeviceToHost)); }));
  return 0;
}
