#include "device/cuda/cuda_memory.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <exception>
#include <utility>

#include "device/cuda/cuda_kernels.h"
#include "winnow/error.h"

namespace winnow::device {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{64} << 20;
constexpr std::size_t kSmallestStaging = std::size_t{16} << 20;
constexpr std::size_t kListed = 16384;  // copies of one launch
// From so many bytes on, the few blocks that share a copy of a list take longer than a call of the driver for it.
constexpr std::size_t kLarge = std::size_t{256} << 10;

// Returns true if a copy's source overlaps any target.
bool any_source_is_written(std::span<const ByteCopy> copies) {
  std::vector<std::pair<const std::byte*, const std::byte*>> targets;
  targets.reserve(copies.size());
  for (const ByteCopy& copy : copies) targets.emplace_back(copy.to, copy.to + copy.bytes);
  std::sort(targets.begin(), targets.end());
  return std::any_of(copies.begin(), copies.end(), [&](const ByteCopy& copy) {
    // Targets do not overlap: the first one that ends after the source's begin is the lowest that can overlap it.
    const auto target = std::upper_bound(targets.begin(), targets.end(), copy.from,
                                         [](const std::byte* from, const auto& range) { return from < range.second; });
    return target != targets.end() && target->first < copy.from + copy.bytes;
  });
}

}  // namespace

void throw_out_of_memory(int device, std::size_t bytes) {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  static_cast<void>(cudaGetLastError());
  throw Error(ErrorCode::kOutOfMemory, "cuda:" + std::to_string(device) + " has no room for " + std::to_string(bytes) +
                                           " bytes: " + std::to_string(free) + " of " + std::to_string(total) +
                                           " are free: lower the KV budget, shorten the prompt, or choose a model or "
                                           "weights that are smaller");
}

CudaBlock::CudaBlock(std::size_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}

CudaBlock::CudaBlock(CudaBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CudaBlock& CudaBlock::operator=(CudaBlock other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CudaBlock::~CudaBlock() {
  if (data_ != nullptr) cudaFree(data_);
}

CudaMemory::CudaMemory(std::shared_ptr<CudaQueue> queue) : queue_(std::move(queue)), list_(kListed * sizeof(ByteCopy)) {
  if (list_.data() == nullptr) throw_out_of_memory(queue_->device(), kListed * sizeof(ByteCopy));
}

CudaMemory::~CudaMemory() { queue_->use(); }

std::byte* CudaMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(queue_->mutex());
  for (const auto& chunk : chunks_) {
    if (std::byte* const block = chunk->blocks.allocate(bytes)) return block;
  }
  queue_->use();
  const std::size_t needed = std::max<std::size_t>(bytes, 1) + BlockAllocator::kAlignment;
  CudaBlock memory(std::max(kChunkBytes, needed));
  if (memory.data() == nullptr && needed < kChunkBytes) memory = CudaBlock(needed);
  if (memory.data() == nullptr) throw_out_of_memory(queue_->device(), bytes);
  const BlockAllocator blocks(memory.data(), memory.bytes());
  chunks_.push_back(std::make_unique<Chunk>(Chunk{std::move(memory), blocks}));
  return chunks_.back()->blocks.allocate(bytes);
}

void CudaMemory::free(std::byte* block, std::size_t) noexcept {
  const std::lock_guard lock(queue_->mutex());
  const auto found =
      std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& chunk) { return chunk->blocks.holds(block); });
  assert(found != chunks_.end());
  (*found)->blocks.free(block);
  if ((*found)->blocks.bytes_in_use() > 0) return;
  // One empty chunk is kept for later allocations: the driver waits for the device before it frees memory.
  const auto is_empty = [](const auto& chunk) { return chunk->blocks.bytes_in_use() == 0; };
  if (std::count_if(chunks_.begin(), chunks_.end(), is_empty) == 1) return;
  queue_->use();
  chunks_.erase(found);
}

void CudaMemory::give_back(std::byte*, std::size_t) noexcept {}  // a part of a block cannot be freed

// Runs copies of which no source overlaps a target: in any order.
void CudaMemory::run(std::span<const ByteCopy> copies) {
  std::vector<ByteCopy> small;
  for (const ByteCopy& copy : copies) {
    if (copy.bytes < kLarge) {
      small.push_back(copy);
      continue;
    }
    queue_->check(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, queue_->stream()),
                  "a large copy");
  }
  for (std::size_t i = 0; i < small.size(); i += kListed) {
    const std::span<const ByteCopy> some = std::span(small).subspan(i, std::min(kListed, small.size() - i));
    queue_->upload(list_.data(), some.data(), some.size_bytes());
    const Copies plan{.list = list_.data(), .n = static_cast<int>(some.size())};
    queue_->check(launch_kernel(queue_->stream(), plan), Copies::kName);
  }
}

void CudaMemory::copy_staged(std::span<const ByteCopy> copies, std::span<ByteCopy> gathers,
                             std::span<ByteCopy> scatters, std::size_t bytes) {
  if (bytes > staging_.bytes()) {
    staging_ = CudaBlock();
    staging_ = CudaBlock(std::max(kSmallestStaging, bytes));
  }
  if (bytes > staging_.bytes()) {
    copy_through_host(copies);
    return;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(staging_.data());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    gathers[i].to += base;
    scatters[i].from += base;
  }
  run(gathers);
  run(scatters);
}

// The fallback if the device has no room left for staging.
void CudaMemory::copy_through_host(std::span<const ByteCopy> copies) {
  std::size_t n = 0;
  for (const ByteCopy& copy : copies) n += copy.bytes;
  std::vector<std::byte> bytes(n);
  n = 0;
  for (const ByteCopy& copy : copies) {
    queue_->download(bytes.data() + n, copy.from, copy.bytes);
    n += copy.bytes;
  }
  n = 0;
  for (const ByteCopy& copy : copies) {
    queue_->upload(copy.to, bytes.data() + n, copy.bytes);
    n += copy.bytes;
  }
}

// Computes as much as possible before it takes the lock, on which threads that cut different heads wait for each other.
void CudaMemory::copy(std::span<const ByteCopy> copies) noexcept {
  if (copies.empty()) return;
  try {
    const bool is_staged = any_source_is_written(copies);
    // The copies through staging memory, whose addresses count from 0 here.
    std::vector<ByteCopy> gathers, scatters;
    std::size_t bytes = 0;
    for (const ByteCopy& copy : is_staged ? copies : std::span<const ByteCopy>()) {
      constexpr std::uintptr_t kUnit = 16;
      bytes += (reinterpret_cast<std::uintptr_t>(copy.from) - bytes) % kUnit;  // the same alignment
      auto* const place = reinterpret_cast<std::byte*>(bytes);
      gathers.push_back({place, copy.from, copy.bytes});
      scatters.push_back({copy.to, place, copy.bytes});
      bytes += copy.bytes;
    }
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    if (is_staged) {
      copy_staged(copies, gathers, scatters, bytes);
    } else {
      run(copies);
    }
  } catch (const std::exception&) {
    // The next call that waits throws the error; the copied bytes are lost like everything on a failed device.
    queue_->note(cudaErrorUnknown, "copying entries");
  }
}

void CudaMemory::read(void* to, const std::byte* from, std::size_t bytes) { queue_->download(to, from, bytes); }
void CudaMemory::write(std::byte* to, const void* from, std::size_t bytes) { queue_->upload(to, from, bytes); }

}  // namespace winnow::device
