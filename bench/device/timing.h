// Medians of times on the GPU, for the programs of this folder.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "device_array.h"

namespace winnow::bench {

// Returns the median microseconds of n runs of `work` on the stream, after n_warm others. `work` is given the number of
// runs before.
inline double median_us(cudaStream_t stream, int n, const std::function<void(int)>& work, int n_warm = 2) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < n_warm + n; ++i) {
    check(cudaEventRecord(begin, stream));
    work(i);
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= n_warm) times.push_back(1e3 * static_cast<double>(ms));
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace winnow::bench
