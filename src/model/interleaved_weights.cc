#include "model/interleaved_weights.h"

#include <ggml-cpp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/round_up.h"
#include "gguf/gguf_file.h"
#include "kernels/products/quantised_product.h"

namespace winnow {
namespace {

using kernels::InterleavedPanel;
using kernels::kInterleavedRows;

constexpr std::size_t kAlignment = 64;  // bytes of a load

char interleaved_mark;  // `extra` of an interleaved matrix points here

InterleavedPanel panel_of(const ggml_tensor* weight) {
  return {*kernels::weight_blocks(ggml_type_name(weight->type)), weight->ne[0]};
}

std::size_t bytes_of(const ggml_tensor* weight) {
  return ggml_row_size(weight->type, weight->ne[0]) * static_cast<std::size_t>(weight->ne[1] * weight->ne[2]);
}

// Panels [first, last) of one matrix, which a thread takes at once.
struct Item {
  const ggml_tensor *from, *to;
  std::int64_t matrix, first, last;
};

void interleave_item(const Item& item, const GgufFile& file) {
  const InterleavedPanel shape = panel_of(item.from);
  const auto in_matrix = [&](const ggml_tensor* tensor) {
    return static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(item.matrix) * tensor->nb[2];
  };
  const std::size_t begin = static_cast<std::size_t>(item.first) * shape.bytes();
  const std::size_t end = static_cast<std::size_t>(item.last) * shape.bytes();
  for (std::size_t at = begin; at < end; at += shape.bytes()) {
    kernels::interleave(shape, in_matrix(item.from) + at, in_matrix(item.to) + at);
  }
  file.release(in_matrix(item.from) + begin, end - begin);  // so that they are not in memory twice
}

}  // namespace

kernels::WeightLayout layout_of(const ggml_tensor* weight) {
  return weight->extra == &interleaved_mark ? kernels::WeightLayout::kInterleaved : kernels::WeightLayout::kRows;
}

const std::byte* stored_row(const ggml_tensor* weight, std::int64_t i, std::vector<std::byte>& row) {
  const auto* data = static_cast<const std::byte*>(weight->data);
  if (layout_of(weight) == kernels::WeightLayout::kRows) return data + static_cast<std::size_t>(i) * weight->nb[1];
  const InterleavedPanel shape = panel_of(weight);
  row.resize(shape.row_bytes());
  kernels::interleaved_row(shape, data + static_cast<std::size_t>(i / kInterleavedRows) * shape.bytes(),
                           static_cast<std::size_t>(i % kInterleavedRows), row.data());
  return row.data();
}

// The memory and the tensors of one call.
struct InterleavedWeights::Part {
  Part(std::size_t the_bytes, std::size_t n_tensors)
      : context(ggml_init({.mem_size = n_tensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})),
        bytes(the_bytes),
        memory(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (has_memory()) madvise(memory, bytes, MADV_HUGEPAGE);
  }
  ~Part() {
    if (memory != MAP_FAILED) munmap(memory, bytes);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  bool has_memory() const { return context != nullptr && memory != MAP_FAILED; }

  ggml_context_ptr context;
  std::size_t bytes;
  void* memory;
};

bool InterleavedWeights::takes(const ggml_tensor* weight) {
  return kernels::has_quantised_products() && kernels::weight_blocks(ggml_type_name(weight->type)) &&
         weight->ne[1] % kInterleavedRows == 0 && weight->ne[3] == 1 &&
         weight->nb[1] == ggml_row_size(weight->type, weight->ne[0]) &&
         layout_of(weight) == kernels::WeightLayout::kRows;
}

std::size_t InterleavedWeights::bytes(std::span<ggml_tensor** const> matrices) {
  std::size_t sum = 0;
  for (ggml_tensor** matrix : matrices) {
    if (*matrix != nullptr && takes(*matrix)) sum += round_up(bytes_of(*matrix), kAlignment);
  }
  return sum;
}

void InterleavedWeights::replace(std::span<ggml_tensor** const> matrices, const GgufFile& file, int n_threads) {
  std::vector<ggml_tensor**> taken(matrices.begin(), matrices.end());
  std::erase_if(taken, [](ggml_tensor** matrix) { return *matrix == nullptr || !takes(*matrix); });
  if (taken.empty()) return;
  const auto part = std::make_shared<Part>(bytes(matrices), taken.size());
  if (!part->has_memory()) return;

  std::vector<Item> items;
  auto* at = static_cast<std::byte*>(part->memory);
  for (ggml_tensor** matrix : taken) {
    const ggml_tensor* source = *matrix;
    ggml_tensor* to =
        ggml_new_tensor_3d(part->context.get(), source->type, source->ne[0], source->ne[1], source->ne[2]);
    to->data = at;
    to->buffer = source->buffer;
    to->extra = &interleaved_mark;
    at += round_up(bytes_of(source), kAlignment);
    constexpr std::int64_t kPanels = 16;
    const std::int64_t n_panels = source->ne[1] / kInterleavedRows;
    for (std::int64_t m = 0; m < source->ne[2]; ++m) {
      for (std::int64_t p = 0; p < n_panels; p += kPanels) {
        items.push_back({source, to, m, p, std::min(p + kPanels, n_panels)});
      }
    }
    *matrix = to;
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < items.size(); i = next++) interleave_item(items[i], file);
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(work);
    work();
  }
  mprotect(part->memory, part->bytes, PROT_READ);
  parts_.push_back(part);
}

}  // namespace winnow
