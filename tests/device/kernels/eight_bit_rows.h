// Rows of numbers in 8 bits for tests of device kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "device/kernel_plans.h"
#include "normal_numbers.h"

namespace winnow::device {

// An array at a 256-byte aligned address, exactly as large as asked for, so that sanitizers find accesses beyond it.
template <class T>
class AlignedArray {
 public:
  explicit AlignedArray(std::size_t n) : n_(n), data_(nullptr, std::free) {
    void* data = nullptr;
    if (posix_memalign(&data, 256, n * sizeof(T)) != 0) throw std::bad_alloc();
    data_.reset(static_cast<T*>(data));
    for (std::size_t i = 0; i < n; ++i) data_.get()[i] = T{};
  }

  T* data() const { return data_.get(); }
  std::size_t size() const { return n_; }
  T& operator[](std::size_t i) const { return data_.get()[i]; }

 private:
  std::size_t n_;
  std::unique_ptr<T, void (*)(void*)> data_;
};

inline AlignedArray<float> random_floats(std::size_t n, std::mt19937& random, float magnitude = 1.0F) {
  AlignedArray<float> x(n);
  test::fill_normal({x.data(), n}, random, 0, magnitude);
  return x;
}

class EightBitArrays {
 public:
  EightBitArrays(int n_rows, int n)
      : n_(static_cast<std::size_t>(n)),
        numbers_(static_cast<std::size_t>(n_rows) * n_),
        scales_(static_cast<std::size_t>(n_rows) * n_ / 16) {}

  EightBitRows rows() const { return {numbers_.data(), scales_.data()}; }
  // Returns the rows from `row` on.
  EightBitRows rows_from(int row) const {
    const auto at = static_cast<std::size_t>(row) * n_;
    return {numbers_.data() + at, scales_.data() + at / 16};
  }
  std::size_t size() const { return numbers_.size(); }
  int byte(std::size_t i) const { return numbers_[i]; }
  float scale(std::size_t i) const { return scales_[i / 32 * 2]; }
  float scaled_sum(std::size_t i) const { return scales_[i / 32 * 2 + 1]; }
  double number(std::size_t i) const { return static_cast<double>(scale(i)) * byte(i); }

  void fill(std::mt19937& random) {
    for (std::size_t i = 0; i < size(); i += 32) {
      const float scale = 0.01F + static_cast<float>(random() % 1000) * 1e-4F;
      int sum = 0;
      for (std::size_t j = i; j < i + 32; ++j) {
        numbers_[j] = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        sum += numbers_[j];
      }
      scales_[i / 16] = scale;
      scales_[i / 16 + 1] = scale * static_cast<float>(sum);
    }
  }

 private:
  std::size_t n_;
  AlignedArray<std::int8_t> numbers_;
  AlignedArray<float> scales_;
};

}  // namespace winnow::device
