// NumPy arrays that own C++ vectors: nothing is copied, and an array lives as long as somebody holds it.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace winnow::python {

template <typename T>
using Array = nanobind::ndarray<nanobind::numpy, T>;

// Returns `data` as an array. `shape` has as many elements as `data`.
template <typename T>
Array<T> array_of(std::vector<T> data, std::initializer_list<std::size_t> shape) {
  auto* const owned = new std::vector<T>(std::move(data));
  const nanobind::capsule owner(owned, [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  return Array<T>(owned->data(), shape, owner);
}

}  // namespace winnow::python
