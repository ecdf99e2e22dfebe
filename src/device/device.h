// A device that computes besides this machine's processor: its memory, its queue of work, ggml's back end for the
// graphs of layers, and winnow's own kernels. HostDevice (host_device.h) runs on this machine's processor, for tests;
// the CUDA plugin provides the other implementation.
//
// All work is queued in order and runs asynchronously; download() and wait() wait for it. Errors of queued work are
// thrown by the next call that waits. Not thread-safe, except memory(): callers hold the engine's mutex.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/entry_memory.h"
#include "device/kernel_plans.h"

struct ggml_backend;
struct ggml_backend_buffer;
struct ggml_cgraph;

namespace winnow::device {

struct DeviceInfo {
  std::string id;           // as given to --device: "cuda:0"
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string description;  // further properties: compute capability, driver
  std::size_t bytes_total = 0;
};

// A block of a device's memory. Move-only; freed with the object, which must not outlive its device.
class Buffer {
 public:
  Buffer() = default;
  // block: the owner of the bytes, if the ggml buffer only refers to them
  Buffer(ggml_backend_buffer* buffer, std::byte* data, std::size_t bytes, std::shared_ptr<void> block = nullptr)
      : buffer_(buffer), data_(data), bytes_(bytes), block_(std::move(block)) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }
  ggml_backend_buffer* buffer() const { return buffer_; }  // for graphs' tensors that lie in it
  explicit operator bool() const { return data_ != nullptr; }

 private:
  ggml_backend_buffer* buffer_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> block_;
};

// Queued work that was recorded and can be queued again as a whole (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// Copies to a device that run beside its queue (Device::upload_beside()). Its destructor waits for them.
class SideUpload {
 public:
  virtual ~SideUpload() = default;
  // Makes what is queued from now on wait for the copies. Throws Error(kInternal) if one of them failed.
  virtual void join() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual std::size_t bytes_free() const = 0;
  // Returns ggml's back end, whose graphs run in the same queue.
  virtual ggml_backend* backend() = 0;
  // Queues the nodes first, ..., last - 1 of a graph whose tensors lie in this device's memory. Throws Error(kInternal)
  // if ggml refuses them.
  virtual void compute(ggml_cgraph* graph, int first, int last) = 0;

  // Returns a block of at least `bytes` bytes, 256-byte aligned. Throws Error(kOutOfMemory), whose message gives the
  // free bytes.
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Returns the memory in which sessions' pages lie. It may outlive the call, but not the device.
  virtual std::shared_ptr<EntryMemory> memory() = 0;

  // Copies to the device; `from` may change once this returns.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  // Begins to copy to the device as soon as what has been queued by now is done, beside all that is queued later. The
  // bytes that are copied must stay as they are until join() of the result has returned, and what is queued before that
  // must not touch the places that they are copied to. Only one upload may run at a time.
  virtual std::unique_ptr<SideUpload> upload_beside(std::vector<ByteCopy> copies) = 0;
  // Copies from the device and waits for it.
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill_zero(void* to, std::size_t bytes) = 0;
  // Waits for all queued work. Throws Error(kInternal) with the device's message if any of it failed.
  virtual void wait() = 0;

  // Queues one of winnow's own kernels.
  virtual void queue(const KernelPlan& plan) = 0;
  // Queues a product.
  virtual void multiply(const Product& plan) = 0;
  // Converts n numbers (whole rows) of a ggml type to bf16. Throws Error(kUnsupported) for a type that the device does
  // not convert.
  virtual void dequantise_bf16(int ggml_type, const void* from, void* to, std::int64_t n) = 0;

  // Records what `work` queues, without running it; returns null if the device cannot record. The same work must have
  // run before, so that it allocates no memory while it is recorded, and must neither upload nor wait
  // (Error(kInternal)). A replay reads the present contents of the plans' addresses; graphs must live as long as the
  // recording.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
};

// Grows a buffer to at least `bytes` bytes, after waiting for queued work that may still read it; its contents are
// lost. Throws Error(kOutOfMemory), and the buffer is then empty.
void grow(Device& device, Buffer& buffer, std::size_t bytes);

}  // namespace winnow::device
