// The one stream of a CUDA device, in which ggml's graphs, winnow's kernels and all copies run in order, and the pinned
// memory through which bytes go between it and the process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <string>

namespace winnow::device {

// Pinned memory of the process.
class PinnedBytes {
 public:
  // Throws Error(kOutOfMemory).
  explicit PinnedBytes(std::size_t bytes);
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  ~PinnedBytes();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// A mark in the stream.
class Event {
 public:
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Thread-safe: what one thread queues while another records waits for it.
class CudaQueue {
 public:
  // The stream stays its owner's.
  CudaQueue(int device, cudaStream_t stream);

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  // Held while something is queued.
  std::recursive_mutex& mutex() { return mutex_; }
  // CUDA's functions take the calling thread's device.
  void use() noexcept;

  // Throws Error(kInternal) with CUDA's words unless the status is a success.
  void check(cudaError_t status, const char* what);
  // Keeps an error for the next check(), for functions that must not throw.
  void note(cudaError_t status, const char* what) noexcept;
  bool has_failed() const { return noted_ != cudaSuccess; }

  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  void wait();

  // Between the two, what is queued is recorded. Whoever begins ends it, in the same thread. end() throws Error.
  void begin_recording();
  cudaGraphExec_t end_recording();
  void abandon_recording() noexcept;

 private:
  static constexpr int kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 20;

  void require_not_recording(const char* what) const;
  void next_slot();

  int device_;
  cudaStream_t stream_;
  std::recursive_mutex mutex_;
  cudaError_t noted_ = cudaSuccess;
  const char* noted_what_ = "";
  bool is_recording_ = false;

  // Uploads fill one slot after the other; a slot's event says when its last copy was carried out.
  PinnedBytes uploads_{kSlots * kSlotBytes};
  Event uploaded_[kSlots];
  int slot_ = 0;
  std::size_t slot_used_ = 0;

  PinnedBytes downloads_{2 * kSlotBytes};
  Event downloaded_[2];
};

}  // namespace winnow::device
