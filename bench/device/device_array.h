// Arrays in the device's memory, and a check that ends the program on a CUDA error, for the programs of this folder.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <utility>
#include <vector>

namespace winnow::bench {

inline void check(cudaError_t error, std::source_location at = std::source_location::current()) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s, line %u: %s: %s\n", at.file_name(), at.line(), cudaGetErrorName(error),
               cudaGetErrorString(error));
  std::exit(2);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : n_(n) { check(cudaMalloc(&data_, std::max<std::size_t>(n, 1) * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) { write(from); }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), n_(other.n_) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { check(cudaFree(data_)); }

  T* data() const { return data_; }
  std::size_t size() const { return n_; }
  void write(const std::vector<T>& from) {
    if (n_ > 0) check(cudaMemcpy(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> read() const {
    std::vector<T> to(n_);
    if (n_ > 0) check(cudaMemcpy(to.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
  void fill(int byte) const { check(cudaMemset(data_, byte, n_ * sizeof(T))); }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

}  // namespace winnow::bench
