#include "model/derived_tensors.h"

#include <ggml.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "model/weights.h"
#include "winnow/error.h"

namespace winnow {

Views::Views(int n_layer) {
  // These are q, k, v with biases or a recurrent layer's three, gate and up, and those of per-layer embeddings.
  constexpr std::size_t kPerLayer = 10;
  const std::size_t n = kPerLayer * static_cast<std::size_t>(n_layer);
  context_.reset(ggml_init({.mem_size = n * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}),
                 ggml_free);
  if (!context_) throw Error(ErrorCode::kOutOfMemory, "not enough memory for the table of tensors");
}

ggml_tensor* Views::slice(ggml_tensor* whole, std::int64_t first, std::int64_t n) {
  if (whole == nullptr) return nullptr;
  const bool is_matrix = whole->ne[1] > 1;
  ggml_tensor* part = is_matrix ? ggml_new_tensor_3d(context_.get(), whole->type, whole->ne[0], n, whole->ne[2])
                                : ggml_new_tensor_1d(context_.get(), whole->type, n);
  part->data = static_cast<std::byte*>(whole->data) + static_cast<std::size_t>(first) * whole->nb[is_matrix ? 1 : 0];
  part->nb[2] = is_matrix ? whole->nb[2] : part->nb[2];
  part->buffer = whole->buffer;
  return part;
}

ggml_tensor* Views::columns(ggml_tensor* whole, std::int64_t first, std::int64_t n) {
  const std::int64_t block = ggml_blck_size(whole->type);
  if (first % block != 0 || n % block != 0) {
    throw Error(ErrorCode::kUnsupported, "tensor '" + std::string(ggml_get_name(whole)) + "' has parts of " +
                                             std::to_string(n) + " numbers for each layer, not a multiple of the " +
                                             std::to_string(block) + " in a block of " + ggml_type_name(whole->type) +
                                             ": not supported");
  }
  ggml_tensor* part = ggml_new_tensor_2d(context_.get(), whole->type, n, whole->ne[1]);
  part->data = static_cast<std::byte*>(whole->data) + ggml_row_size(whole->type, first);
  part->nb[1] = whole->nb[1];
  part->nb[2] = part->nb[3] = whole->nb[2];
  part->buffer = whole->buffer;
  return part;
}

ggml_tensor* Views::rows(ggml_tensor* whole) {
  ggml_tensor* all = ggml_new_tensor_2d(context_.get(), whole->type, whole->ne[0], whole->ne[1] * whole->ne[2]);
  all->data = whole->data;
  all->buffer = whole->buffer;
  return all;
}

ggml_tensor* Copies::make(ggml_type type, std::int64_t n_in, std::int64_t n_out, const ggml_tensor* beside) {
  const std::size_t bytes = ggml_row_size(type, n_in) * static_cast<std::size_t>(n_out);
  all_.emplace_back(
      ggml_init({.mem_size = bytes + 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = false}), ggml_free);
  if (!all_.back()) throw Error(ErrorCode::kOutOfMemory, "not enough memory for the weights of attention");
  ggml_tensor* out = ggml_new_tensor_2d(all_.back().get(), type, n_in, n_out);
  out->buffer = beside->buffer;
  return out;
}

ggml_tensor* Copies::constants(std::span<const float> numbers, const ggml_tensor* beside) {
  ggml_tensor* out = make(GGML_TYPE_F32, static_cast<std::int64_t>(numbers.size()), 1, beside);
  std::memcpy(out->data, numbers.data(), numbers.size_bytes());
  return out;
}

ggml_tensor* Copies::transposed(const ggml_tensor* heads) {
  const std::int64_t n = heads->ne[0], n_in = heads->ne[1], n_head = heads->ne[2];
  const bool is_kept = heads->type == GGML_TYPE_F32 || heads->type == GGML_TYPE_BF16;
  const ggml_type type = is_kept ? heads->type : GGML_TYPE_F16;
  ggml_tensor* out = make(type, n_in, n * n_head, heads);
  std::vector<float> of_head(static_cast<std::size_t>(n * n_in)), row(static_cast<std::size_t>(n_in));
  for (std::int64_t h = 0; h < n_head; ++h) {
    for (std::int64_t i = 0; i < n_in; ++i) dequantize_row(heads, h * n_in + i, of_head.data() + i * n);
    for (std::int64_t o = 0; o < n; ++o) {
      for (std::int64_t i = 0; i < n_in; ++i) {
        row[static_cast<std::size_t>(i)] = of_head[static_cast<std::size_t>(i * n + o)];
      }
      std::byte* at = static_cast<std::byte*>(out->data) + static_cast<std::size_t>(h * n + o) * out->nb[1];
      if (type == GGML_TYPE_F32) {
        std::memcpy(at, row.data(), row.size() * sizeof(float));
      } else {
        ggml_get_type_traits(type)->from_float_ref(row.data(), at, n_in);
      }
    }
  }
  return out;
}

}  // namespace winnow
