#include "model/tensor_writer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "normal_numbers.h"

namespace winnow::test {
namespace {

// Says whether a type's codes name points of a grid. ggml takes seconds to quantise to these, since it first looks up
// the neighbours of every point.
bool has_grid(ggml_type type) {
  switch (type) {
    case GGML_TYPE_IQ1_S:
    case GGML_TYPE_IQ1_M:
    case GGML_TYPE_IQ2_XXS:
    case GGML_TYPE_IQ2_XS:
    case GGML_TYPE_IQ2_S:
    case GGML_TYPE_IQ3_XXS:
    case GGML_TYPE_IQ3_S:
      return true;
    default:
      return false;
  }
}

// Writes the scale of a block of such a type: its first two bytes, or the high bits of IQ1_M's four last words.
void set_scale(ggml_type type, std::byte* block, float scale) {
  const ggml_fp16_t half = ggml_fp32_to_fp16(scale);
  if (type != GGML_TYPE_IQ1_M) {
    std::memcpy(block, &half, sizeof half);
    return;
  }
  std::byte* at = block + ggml_type_size(type) - 4 * sizeof half;
  for (unsigned i = 0; i < 4; ++i, at += sizeof half) {
    std::uint16_t word;
    std::memcpy(&word, at, sizeof word);
    word = static_cast<std::uint16_t>((word & 0x0FFFU) | (half >> (4 * i) & 0xFU) << 12U);
    std::memcpy(at, &word, sizeof word);
  }
}

// Fills n numbers of such a type with random codes, and scales them to the deviation.
void draw_codes(ggml_type type, std::mt19937& random, std::int64_t n, float deviation, std::byte* out) {
  const std::size_t n_bytes = ggml_row_size(type, n);
  const auto set_scales = [&](float scale) {
    for (std::size_t at = 0; at < n_bytes; at += ggml_type_size(type)) set_scale(type, out + at, scale);
  };
  for (std::size_t i = 0; i < n_bytes; ++i) out[i] = static_cast<std::byte>(random());
  set_scales(1);
  std::vector<float> values(static_cast<std::size_t>(n));
  ggml_get_type_traits(type)->to_float(out, values.data(), n);
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  set_scales(deviation / static_cast<float>(std::sqrt(sum / static_cast<double>(n))));
}

}  // namespace

void TensorWriter::matrix(const std::string& name, int n_in, int n_out, float gain) {
  const int type = options_.type_of ? options_.type_of(name) : options_.weight_type;
  add(name, values_of(type, n_in, n_out, 1, options_.gain_of ? gain * options_.gain_of(name) : gain));
}

void TensorWriter::expert_matrices(const std::string& name, int n_in, int n_out) {
  const int type = options_.expert_weight_type >= 0 ? options_.expert_weight_type : options_.weight_type;
  add(name, values_of(type, n_in, n_out, options_.n_expert, 1));
}

void TensorWriter::matrices(const std::string& name, int n_in, int n_out, int n) {
  add(name, values_of(options_.type_of ? options_.type_of(name) : options_.weight_type, n_in, n_out, n, 1));
}

void TensorWriter::float_matrix(const std::string& name, int n_in, int n_out, float gain) {
  add(name, values_of(GGML_TYPE_F32, n_in, n_out, 1, gain));
}

void TensorWriter::constants(const std::string& name, int n, int n_rows, float mean, float deviation) {
  ggml_tensor* tensor = make(GGML_TYPE_F32, n, n_rows, 1);
  fill_normal({static_cast<float*>(tensor->data), static_cast<std::size_t>(std::int64_t{n} * n_rows)}, random_, mean,
              deviation);
  add(name, tensor);
}

void TensorWriter::vector(const std::string& name, int n, float mean, float deviation) {
  constants(name, n, 1, mean, deviation);
}

ggml_tensor* TensorWriter::make(ggml_type type, int n_in, int n_out, int n_matrices) {
  const std::size_t bytes =
      ggml_row_size(type, n_in) * static_cast<std::size_t>(n_out) * static_cast<std::size_t>(n_matrices);
  tensors_.emplace_back(
      ggml_init({.mem_size = bytes + 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = false}));
  return ggml_new_tensor_3d(tensors_.back().get(), type, n_in, n_out, n_matrices);
}

ggml_tensor* TensorWriter::values_of(int weight_type, int n_in, int n_out, int n_matrices, float gain) {
  const auto type = static_cast<ggml_type>(weight_type);
  if (n_in % ggml_blck_size(type) != 0) {
    throw std::runtime_error("rows of " + std::to_string(n_in) + " numbers cannot be " + ggml_type_name(type) +
                             ", whose blocks have " + std::to_string(ggml_blck_size(type)));
  }
  ggml_tensor* tensor = make(type, n_in, n_out, n_matrices);
  for (int i = 0; i < n_matrices; ++i) {
    const int n_drawn = options_.n_drawn_rows > 0 ? std::min(n_out, options_.n_drawn_rows) : n_out;
    const std::int64_t n = std::int64_t{n_in} * n_drawn;
    const float deviation = gain / std::sqrt(static_cast<float>(n_in));
    std::byte* out = static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(i) * tensor->nb[2];
    if (has_grid(type)) {
      draw_codes(type, random_, n, deviation, out);
    } else if (const std::vector<float> values = normal_numbers(static_cast<std::size_t>(n), random_, 0, deviation);
               type == GGML_TYPE_F32) {
      std::copy(values.begin(), values.end(), reinterpret_cast<float*>(out));
    } else {
      ggml_quantize_chunk(type, values.data(), out, 0, n_drawn, n_in, nullptr);
    }
    for (int row = n_drawn; row < n_out; ++row) {
      std::copy_n(out + static_cast<std::size_t>(row - n_drawn) * tensor->nb[1], tensor->nb[1],
                  out + static_cast<std::size_t>(row) * tensor->nb[1]);
    }
  }
  return tensor;
}

void TensorWriter::add(const std::string& name, ggml_tensor* tensor) {
  if (std::find(options_.left_out.begin(), options_.left_out.end(), name) != options_.left_out.end()) return;
  ggml_set_name(tensor, name.c_str());
  gguf_add_tensor(file_, tensor);
}

}  // namespace winnow::test
