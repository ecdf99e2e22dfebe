#include "device/device.h"

#include <ggml-backend.h>

#include <utility>

namespace winnow::device {

Buffer::Buffer(Buffer&& other) noexcept
    : buffer_(std::exchange(other.buffer_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      block_(std::move(other.block_)) {}

Buffer& Buffer::operator=(Buffer other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(block_, other.block_);
  return *this;
}

Buffer::~Buffer() {
  if (buffer_ != nullptr) ggml_backend_buffer_free(buffer_);
}

void grow(Device& device, Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() >= bytes) return;
  device.wait();
  buffer = {};
  buffer = device.allocate(bytes + bytes / 4);
}

}  // namespace winnow::device
