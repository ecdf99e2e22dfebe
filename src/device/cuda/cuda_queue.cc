#include "device/cuda/cuda_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/round_up.h"
#include "winnow/error.h"

namespace winnow::device {

PinnedBytes::PinnedBytes(std::size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t status = cudaMallocHost(&data, bytes); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::kOutOfMemory,
                "CUDA refuses " + std::to_string(bytes) + " bytes of pinned memory: " + cudaGetErrorString(status));
  }
  data_ = static_cast<std::byte*>(data);
}

PinnedBytes::~PinnedBytes() { cudaFreeHost(data_); }

Event::Event() {
  if (const cudaError_t status = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); status != cudaSuccess) {
    throw Error(ErrorCode::kInternal, std::string("CUDA cannot make an event: ") + cudaGetErrorString(status));
  }
}

Event::~Event() { cudaEventDestroy(event_); }

CudaQueue::CudaQueue(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

void CudaQueue::use() noexcept {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == device_) return;
  note(cudaSetDevice(device_), "choosing the device");
}

void CudaQueue::note(cudaError_t status, const char* what) noexcept {
  if (status == cudaSuccess || noted_ != cudaSuccess) return;
  noted_ = status;
  noted_what_ = what;
}

void CudaQueue::check(cudaError_t status, const char* what) {
  if (noted_ != cudaSuccess) {
    status = std::exchange(noted_, cudaSuccess);
    what = noted_what_;
  }
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // else the next call would report it, too
  throw Error(ErrorCode::kInternal, "cuda:" + std::to_string(device_) + " failed (" + what +
                                        "): " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

void CudaQueue::require_not_recording(const char* what) const {
  if (is_recording_) throw Error(ErrorCode::kInternal, std::string(what) + " was requested within a recording");
}

void CudaQueue::next_slot() {
  check(cudaEventRecord(uploaded_[slot_].get(), stream_), "marking an upload");
  slot_ = (slot_ + 1) % kSlots;
  slot_used_ = 0;
  check(cudaEventSynchronize(uploaded_[slot_].get()), "waiting for an upload");
}

void CudaQueue::upload(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  require_not_recording("an upload");
  use();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    if (slot_used_ == kSlotBytes) next_slot();
    const std::size_t n = std::min(bytes, kSlotBytes - slot_used_);
    std::byte* const pinned = uploads_.data() + static_cast<std::size_t>(slot_) * kSlotBytes + slot_used_;
    std::memcpy(pinned, source, n);
    check(cudaMemcpyAsync(target, pinned, n, cudaMemcpyHostToDevice, stream_), "an upload");
    slot_used_ = std::min(kSlotBytes, round_up(slot_used_ + n, 64));
    target += n;
    source += n;
    bytes -= n;
  }
}

void CudaQueue::download(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  require_not_recording("a download");
  use();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const auto pinned = [&](std::size_t half) { return downloads_.data() + half * kSlotBytes; };
  // One half is emptied while the device fills the other.
  std::size_t waiting = 0;  // bytes in the half that was filled last
  std::size_t half = 0;
  const auto empty = [&](std::size_t which) {
    check(cudaEventSynchronize(downloaded_[which].get()), "a download");
    std::memcpy(target, pinned(which), waiting);
    target += waiting;
  };
  while (bytes > 0) {
    const std::size_t n = std::min(bytes, kSlotBytes);
    check(cudaMemcpyAsync(pinned(half), source, n, cudaMemcpyDeviceToHost, stream_), "a download");
    check(cudaEventRecord(downloaded_[half].get(), stream_), "a download");
    if (waiting > 0) empty(1 - half);
    waiting = n;
    source += n;
    bytes -= n;
    half = 1 - half;
  }
  if (waiting > 0) empty(1 - half);
  check(cudaSuccess, "");
}

void CudaQueue::wait() {
  const std::lock_guard lock(mutex_);
  require_not_recording("a wait");
  use();
  check(cudaStreamSynchronize(stream_), "queued work");
}

void CudaQueue::begin_recording() {
  mutex_.lock();
  try {
    require_not_recording("a recording");
    use();
    // The mode is relaxed, since ggml may allocate memory for its graphs meanwhile.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "beginning a recording");
  } catch (...) {
    mutex_.unlock();
    throw;
  }
  is_recording_ = true;
}

cudaGraphExec_t CudaQueue::end_recording() {
  const std::lock_guard lock(mutex_, std::adopt_lock);
  is_recording_ = false;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), "ending a recording");
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "making a graph of a recording");
  note(cudaGraphUpload(made, stream_), "uploading a recording");
  return made;
}

void CudaQueue::abandon_recording() noexcept {
  const std::lock_guard lock(mutex_, std::adopt_lock);
  is_recording_ = false;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());
}

}  // namespace winnow::device
