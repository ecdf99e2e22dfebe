// copy_bandwidth measures how fast this GPU copies within its memory (bytes read and written together) and between its
// memory and the process's pinned memory. Kernels that are bound by memory are compared with these numbers. Prints
// lines "NAME GB/s".
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr int kRuns = 15;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "error: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// Returns the median of several runs, in seconds.
template <class Work>
double median_seconds(const Work& work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kRuns; ++i) {
    check(cudaEventRecord(begin));
    work();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds / 1000);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void report(const char* name, std::size_t bytes, double seconds) {
  std::printf("%s %.0f\n", name, static_cast<double>(bytes) / seconds / 1e9);
}

}  // namespace

int main() {
  void *from, *to, *pinned;
  check(cudaMalloc(&from, kBytes));
  check(cudaMalloc(&to, kBytes));
  check(cudaMallocHost(&pinned, kBytes / 4));
  check(cudaMemset(from, 1, kBytes));
  report("copy_within", 2 * kBytes,
         median_seconds([&] { check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice)); }));
  report("copy_to_device", kBytes / 4,
         median_seconds([&] { check(cudaMemcpyAsync(to, pinned, kBytes / 4, cudaMemcpyHostToDevice)); }));
  report("copy_from_device", kBytes / 4,
         median_seconds([&] { check(cudaMemcpyAsync(pinned, from, kBytes / 4, cudaMemcpyDeviceToHost)); }));
  return 0;
}
