#include "device/cuda/cuda_side_uploads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "winnow/error.h"

namespace winnow::device {

CudaSideUploads::CudaSideUploads(std::shared_ptr<CudaQueue> queue) : queue_(std::move(queue)) {
  queue_->use();
  // The stream does not wait for the default one, which nothing here uses.
  queue_->check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

CudaSideUploads::~CudaSideUploads() {
  abandon();
  queue_->use();
  cudaStreamDestroy(stream_);
}

void CudaSideUploads::begin(std::vector<ByteCopy> copies) {
  if (copying_.valid()) throw Error(ErrorCode::kInternal, "an upload beside the queue runs already");
  const std::lock_guard lock(queue_->mutex());
  queue_->use();
  queue_->check(cudaEventRecord(queued_.get(), queue_->stream()), "marking an upload's begin");
  queue_->check(cudaStreamWaitEvent(stream_, queued_.get()), "an upload's wait for the queue");
  copying_ = std::async(std::launch::async, [this, copies = std::move(copies)] { return copy(copies); });
}

// Queues all copies and the mark behind them in the stream. Runs on a thread of its own, since the slots must be
// filled.
cudaError_t CudaSideUploads::copy(const std::vector<ByteCopy>& copies) {
  cudaError_t status = cudaSetDevice(queue_->device());
  int slot = 0;
  for (const ByteCopy& copy : copies) {
    for (std::size_t done = 0; done < copy.bytes && status == cudaSuccess; slot = (slot + 1) % kSlots) {
      const std::size_t n = std::min(copy.bytes - done, kSlotBytes);
      std::byte* const pinned = pinned_.data() + static_cast<std::size_t>(slot) * kSlotBytes;
      status = cudaEventSynchronize(sent_[slot].get());
      if (status != cudaSuccess) break;
      std::memcpy(pinned, copy.from + done, n);
      status = cudaMemcpyAsync(copy.to + done, pinned, n, cudaMemcpyHostToDevice, stream_);
      if (status == cudaSuccess) status = cudaEventRecord(sent_[slot].get(), stream_);
      done += n;
    }
  }
  return status == cudaSuccess ? cudaEventRecord(copied_.get(), stream_) : status;
}

void CudaSideUploads::join() {
  const cudaError_t status = copying_.get();
  const std::lock_guard lock(queue_->mutex());
  queue_->use();
  queue_->check(status, "an upload beside the queue");
  queue_->check(cudaStreamWaitEvent(queue_->stream(), copied_.get()), "the queue's wait for an upload");
}

void CudaSideUploads::abandon() noexcept {
  if (copying_.valid()) copying_.wait();
  copying_ = {};
  queue_->use();
  cudaStreamSynchronize(stream_);
}

}  // namespace winnow::device
