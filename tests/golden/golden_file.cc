#include "golden/golden_file.h"

#include <ggml.h>
#include <gguf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace winnow::golden {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

}  // namespace

void GoldenFile::Free::operator()(gguf_context* context) const { gguf_free(context); }
void GoldenFile::Free::operator()(ggml_context* context) const { ggml_free(context); }

GoldenFile::GoldenFile(const std::string& path) : path_(path), file_size_(std::filesystem::file_size(path)) {
  ggml_context* tensors = nullptr;
  gguf_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &tensors}));
  tensors_.reset(tensors);
  if (gguf_ == nullptr) refuse("not a readable GGUF file");
  const std::int64_t n_tensors = gguf_get_n_tensors(gguf_.get());
  for (std::int64_t i = 0; i < n_tensors; ++i) {
    const std::uint64_t begin = gguf_get_data_offset(gguf_.get()) + gguf_get_tensor_offset(gguf_.get(), i);
    if (begin + gguf_get_tensor_size(gguf_.get(), i) > file_size_) {
      refuse(std::string("truncated: tensor ") + gguf_get_tensor_name(gguf_.get(), i) + " ends behind the file");
    }
  }
}

std::int64_t GoldenFile::key(const std::string& name) const {
  const std::int64_t id = gguf_find_key(gguf_.get(), name.c_str());
  if (id < 0) refuse("no metadata key " + name);
  return id;
}

bool GoldenFile::has_key(const std::string& name) const { return gguf_find_key(gguf_.get(), name.c_str()) >= 0; }

std::string GoldenFile::text(const std::string& name) const {
  const std::int64_t id = key(name);
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_STRING) refuse("metadata key " + name + " is not a text");
  return gguf_get_val_str(gguf_.get(), id);
}

std::vector<std::string> GoldenFile::texts(const std::string& name) const {
  const std::int64_t id = key(name);
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(gguf_.get(), id) != GGUF_TYPE_STRING) {
    refuse("metadata key " + name + " is not a list of texts");
  }
  std::vector<std::string> result;
  for (std::size_t i = 0; i < gguf_get_arr_n(gguf_.get(), id); ++i) {
    result.emplace_back(gguf_get_arr_str(gguf_.get(), id, i));
  }
  return result;
}

double GoldenFile::number(const std::string& name) const {
  const std::int64_t id = key(name);
  switch (gguf_get_kv_type(gguf_.get(), id)) {
    case GGUF_TYPE_FLOAT32:
      return static_cast<double>(gguf_get_val_f32(gguf_.get(), id));
    case GGUF_TYPE_FLOAT64:
      return gguf_get_val_f64(gguf_.get(), id);
    default:
      return static_cast<double>(integer(name));
  }
}

std::int64_t GoldenFile::integer(const std::string& name) const {
  const std::int64_t id = key(name);
  const gguf_context* gguf = gguf_.get();
  switch (gguf_get_kv_type(gguf, id)) {
    case GGUF_TYPE_UINT8:
      return gguf_get_val_u8(gguf, id);
    case GGUF_TYPE_UINT16:
      return gguf_get_val_u16(gguf, id);
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf, id);
    case GGUF_TYPE_INT32:
      return gguf_get_val_i32(gguf, id);
    case GGUF_TYPE_INT64:
      return gguf_get_val_i64(gguf, id);
    case GGUF_TYPE_UINT64:
      return static_cast<std::int64_t>(gguf_get_val_u64(gguf, id));
    default:
      refuse("metadata key " + name + " is not an integer");
  }
}

std::vector<std::int64_t> GoldenFile::integers(const std::string& name) const {
  if (!has_key(name)) return {};
  const std::int64_t id = key(name);
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY) refuse("metadata key " + name + " is not a list");
  const gguf_type type = gguf_get_arr_type(gguf_.get(), id);
  const std::size_t n = gguf_get_arr_n(gguf_.get(), id);
  std::vector<std::int64_t> result(n);
  if (n == 0) return result;
  if (type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY)
    refuse("metadata key " + name + " is not a list of integers");
  const void* data = gguf_get_arr_data(gguf_.get(), id);
  for (std::size_t i = 0; i < n; ++i) {
    switch (type) {
      case GGUF_TYPE_UINT32:
        result[i] = static_cast<const std::uint32_t*>(data)[i];
        break;
      case GGUF_TYPE_INT32:
        result[i] = static_cast<const std::int32_t*>(data)[i];
        break;
      case GGUF_TYPE_INT64:
      case GGUF_TYPE_UINT64:
        result[i] = static_cast<const std::int64_t*>(data)[i];
        break;
      default:
        refuse("metadata key " + name + " is not a list of integers");
    }
  }
  return result;
}

bool GoldenFile::has(const std::string& tensor) const { return gguf_find_tensor(gguf_.get(), tensor.c_str()) >= 0; }

bool GoldenFile::has_prefix(const std::string& prefix) const {
  const std::int64_t n_tensors = gguf_get_n_tensors(gguf_.get());
  for (std::int64_t i = 0; i < n_tensors; ++i) {
    if (std::strncmp(gguf_get_tensor_name(gguf_.get(), i), prefix.c_str(), prefix.size()) == 0) return true;
  }
  return false;
}

std::vector<char> GoldenFile::bytes(const std::string& tensor, std::vector<std::int64_t>& ne, int& type) const {
  const std::int64_t id = gguf_find_tensor(gguf_.get(), tensor.c_str());
  const ggml_tensor* meta = ggml_get_tensor(tensors_.get(), tensor.c_str());
  if (id < 0 || meta == nullptr) refuse("no tensor " + tensor);
  ne.assign(meta->ne, meta->ne + ggml_n_dims(meta));
  type = meta->type;
  std::vector<char> data(gguf_get_tensor_size(gguf_.get(), id));
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(gguf_get_data_offset(gguf_.get()) + gguf_get_tensor_offset(gguf_.get(), id)));
  if (!file.read(data.data(), static_cast<std::streamsize>(data.size()))) refuse("cannot read tensor " + tensor);
  return data;
}

Tensor<float> GoldenFile::floats(const std::string& tensor) const {
  Tensor<float> result;
  int type = 0;
  const std::vector<char> data = bytes(tensor, result.ne, type);
  if (type == GGML_TYPE_F32) {
    result.data.resize(data.size() / sizeof(float));
    std::memcpy(result.data.data(), data.data(), data.size());
  } else if (type == GGML_TYPE_F16) {
    std::vector<ggml_fp16_t> halves(data.size() / sizeof(ggml_fp16_t));
    std::memcpy(halves.data(), data.data(), data.size());
    result.data.resize(halves.size());
    ggml_fp16_to_fp32_row(halves.data(), result.data.data(), static_cast<std::int64_t>(halves.size()));
  } else {
    refuse("tensor " + tensor + " is neither F32 nor F16");
  }
  return result;
}

Tensor<std::int32_t> GoldenFile::int32s(const std::string& tensor) const {
  Tensor<std::int32_t> result;
  int type = 0;
  const std::vector<char> data = bytes(tensor, result.ne, type);
  if (type != GGML_TYPE_I32) refuse("tensor " + tensor + " is not I32");
  result.data.resize(data.size() / sizeof(std::int32_t));
  std::memcpy(result.data.data(), data.data(), data.size());
  return result;
}

std::vector<double> GoldenFile::doubles(const std::string& tensor) const {
  const Tensor<float> values = floats(tensor);
  return {values.data.begin(), values.data.end()};
}

}  // namespace winnow::golden
