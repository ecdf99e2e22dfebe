// The entries of a layer's heads as kernels that read floats take them: pages of codes are dequantised to a block of
// memory that is used again by the next layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_rows.h"
#include "device/device.h"

namespace winnow {

// Not thread-safe.
class DequantisedPages {
 public:
  // Dequantises the heads' pages of codes, and puts the copies' addresses into their place in `heads`, which must not
  // be used after the next call. Throws Error(kOutOfMemory).
  void show(device::Device& device, std::span<HeadRows> heads, int key_dim, int value_dim);

  std::size_t bytes() const { return rows_.bytes() + list_.bytes(); }

 private:
  device::Buffer rows_;  // pages of float16
  device::Buffer list_;  // device::CodedPage [n], then origins
};

}  // namespace winnow
