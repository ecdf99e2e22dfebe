// The main stream of a CUDA device, in which ggml's graphs, winnow's kernels and nearly all copies run in order, and
// the pinned memory through which bytes are copied between it and the process.
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

// A CUDA event: a mark in the stream.
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

// Thread-safe: a thread that queues work while another records waits for the recording to end.
class CudaQueue {
 public:
  // Does not take ownership of the stream.
  CudaQueue(int device, cudaStream_t stream);

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  // Returns the mutex that is held while work is queued.
  std::recursive_mutex& mutex() { return mutex_; }
  // Makes the device the calling thread's current one, which CUDA's functions use.
  void use() noexcept;

  // Throws Error(kInternal) with CUDA's message unless the status is a success.
  void check(cudaError_t status, const char* what);
  // Keeps an error for the next check(), for functions that must not throw.
  void note(cudaError_t status, const char* what) noexcept;
  bool has_failed() const { return noted_ != cudaSuccess; }

  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  void wait();

  // Work that is queued between begin_recording() and end_recording() is recorded. The same thread must begin and end
  // (or abandon) the recording. end_recording() throws Error.
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

  // Uploads fill one slot after the other; a slot's event marks the completion of its last copy.
  PinnedBytes uploads_{kSlots * kSlotBytes};
  Event uploaded_[kSlots];
  int slot_ = 0;
  std::size_t slot_used_ = 0;

  PinnedBytes downloads_{2 * kSlotBytes};
  Event downloaded_[2];
};

}  // namespace winnow::device
