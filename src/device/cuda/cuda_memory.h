// Memory of a CUDA device for sessions' pages. It takes few large blocks from the driver, whose allocations are slow.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/entry_memory.h"
#include "device/block_allocator.h"
#include "device/cuda/cuda_queue.h"

namespace winnow::device {

// Throws Error(kOutOfMemory), whose message gives the free bytes.
[[noreturn]] void throw_out_of_memory(int device, std::size_t bytes);

// A block from the driver; empty if the driver has no room for it.
class CudaBlock {
 public:
  CudaBlock() = default;
  explicit CudaBlock(std::size_t bytes);
  CudaBlock(CudaBlock&& other) noexcept;
  CudaBlock& operator=(CudaBlock other) noexcept;
  ~CudaBlock();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class CudaMemory final : public EntryMemory {
 public:
  explicit CudaMemory(std::shared_ptr<CudaQueue> queue);
  ~CudaMemory() override;

  bool is_host() const override { return false; }
  std::byte* allocate(std::size_t bytes) override;
  void free(std::byte* block, std::size_t bytes) noexcept override;
  void give_back(std::byte* from, std::size_t bytes) noexcept override;
  void copy(std::span<const ByteCopy> copies) noexcept override;
  void read(void* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const void* from, std::size_t bytes) override;

 private:
  struct Chunk {
    CudaBlock memory;
    BlockAllocator blocks;
  };

  void run(std::span<const ByteCopy> copies);
  // gathers, scatters: the copies to and from staging memory of so many bytes, with addresses relative to its begin
  void copy_staged(std::span<const ByteCopy> copies, std::span<ByteCopy> gathers, std::span<ByteCopy> scatters,
                   std::size_t bytes);
  void copy_through_host(std::span<const ByteCopy> copies);

  std::shared_ptr<CudaQueue> queue_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // guarded by the queue's mutex
  CudaBlock list_;                              // [kListed] ByteCopy
  CudaBlock staging_;
};

}  // namespace winnow::device
