// Copies to a GPU beside its queue, on a stream and a thread of their own: a layer's weights come while the layer
// before it computes.
#pragma once

#include <cuda_runtime_api.h>

#include <future>
#include <memory>
#include <vector>

#include "cache/entry_memory.h"
#include "device/cuda/cuda_queue.h"

namespace winnow::device {

class CudaSideUploads {
 public:
  explicit CudaSideUploads(std::shared_ptr<CudaQueue> queue);
  CudaSideUploads(const CudaSideUploads&) = delete;
  CudaSideUploads& operator=(const CudaSideUploads&) = delete;
  ~CudaSideUploads();

  // Begins to copy as Device::upload_beside() does. Throws Error(kInternal) if copies run already.
  void begin(std::vector<ByteCopy> copies);
  // Makes the queue wait for the copies. Throws Error(kInternal) if one of them failed.
  void join();
  // Waits for the copies, and forgets their errors.
  void abandon() noexcept;

 private:
  static constexpr int kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 20;

  cudaError_t copy(const std::vector<ByteCopy>& copies);

  std::shared_ptr<CudaQueue> queue_;
  cudaStream_t stream_ = nullptr;
  Event queued_, copied_;  // what the copies wait for, and their end
  // The machine's memory is copied through pinned slots in turns; a slot's event marks that it may be filled again.
  PinnedBytes pinned_{kSlots * kSlotBytes};
  Event sent_[kSlots];
  std::future<cudaError_t> copying_;  // valid while copies run
};

}  // namespace winnow::device
