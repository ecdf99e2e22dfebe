#include "model/gguf_file.h"

#include <fcntl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gguf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fnv1a.h"
#include "model/ggml_log.h"
#include "winnow/error.h"

namespace winnow {
namespace {

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
struct GgmlDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct BufferDeleter {
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};

// The whole file as memory: mapped, or read into an anonymous mapping.
class FileBytes {
 public:
  FileBytes(const std::string& path, bool use_mmap) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
      throw Error(code, "cannot open the model '" + path + "': " + std::strerror(errno));
    }
    struct stat info {};
    const bool stat_ok = fstat(fd, &info) == 0;
    if (!stat_ok || !S_ISREG(info.st_mode)) {
      close(fd);
      throw Error(ErrorCode::kBadFile, "'" + path + "' is not a regular file: give the path of a .gguf file");
    }
    size_ = static_cast<std::size_t>(info.st_size);
    mapped_ = use_mmap;
    if (size_ < 24) {
      close(fd);
      throw Error(ErrorCode::kBadFile, "'" + path + "' has only " + std::to_string(size_) + " bytes: not a GGUF file");
    }
    void* memory = use_mmap ? mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0)
                            : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      close(fd);
      throw Error(ErrorCode::kOutOfMemory, "cannot map '" + path + "' into memory: " + std::strerror(errno));
    }
    data_ = static_cast<std::byte*>(memory);
    bool read_ok = true;
    for (std::size_t done = 0; !use_mmap && done < size_;) {
      const ssize_t n = read(fd, data_ + done, std::min<std::size_t>(size_ - done, std::size_t{1} << 30));
      if (n <= 0) {
        read_ok = false;
        break;
      }
      done += static_cast<std::size_t>(n);
    }
    close(fd);
    if (!read_ok) {
      munmap(data_, size_);
      throw Error(ErrorCode::kIo, "cannot read '" + path + "': " + std::strerror(errno));
    }
  }
  ~FileBytes() { munmap(data_, size_); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool mapped() const { return mapped_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace

struct GgufFile::Impl {
  std::unique_ptr<FileBytes> bytes;
  std::unique_ptr<gguf_context, GgufDeleter> gguf;
  std::unique_ptr<ggml_context, GgmlDeleter> tensors;
  std::unique_ptr<ggml_backend_buffer, BufferDeleter> buffer;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t fingerprint = 0;
};

GgufFile::GgufFile(const std::string& path, bool use_mmap) : path_(path), impl_(std::make_unique<Impl>()) {
  silence_ggml();
  impl_->bytes = std::make_unique<FileBytes>(path, use_mmap);
  const std::byte* data = impl_->bytes->data();
  if (std::memcmp(data, "GGUF", 4) != 0) {
    throw Error(ErrorCode::kBadFile, "'" + path + "' does not begin with GGUF: not a model file that winnow can read");
  }
  // ggml's reader checks every count against the bytes that are there.
  take_ggml_errors();
  ggml_context* context = nullptr;
  gguf_init_params params{};
  params.no_alloc = true;
  params.ctx = &context;
  impl_->gguf.reset(gguf_init_from_file(path.c_str(), params));
  impl_->tensors.reset(context);
  if (!impl_->gguf) {
    const std::string reason = take_ggml_errors();
    throw Error(ErrorCode::kBadFile, "'" + path + "' is damaged or not a complete GGUF file" +
                                         (reason.empty() ? std::string() : ": " + reason) +
                                         "; download or convert it again");
  }

  const std::size_t data_offset = gguf_get_data_offset(impl_->gguf.get());
  const std::size_t file_size = impl_->bytes->size();
  Fnv1a hash;
  hash.add(find_string("general.architecture").value_or(""));
  impl_->buffer.reset(ggml_backend_cpu_buffer_from_ptr(impl_->bytes->data(), file_size));
  for (std::int64_t i = 0; i < gguf_get_n_tensors(impl_->gguf.get()); ++i) {
    const char* name = gguf_get_tensor_name(impl_->gguf.get(), i);
    ggml_tensor* tensor = ggml_get_tensor(context, name);
    const std::size_t offset = data_offset + gguf_get_tensor_offset(impl_->gguf.get(), i);
    const std::size_t bytes = ggml_nbytes(tensor);
    if (offset > file_size || bytes > file_size - offset) {
      throw Error(ErrorCode::kBadFile, "'" + path + "' is truncated: tensor '" + name + "' needs bytes up to " +
                                           std::to_string(offset + bytes) + ", the file has " +
                                           std::to_string(file_size) + "; download it again");
    }
    std::byte* address = impl_->bytes->data() + offset;
    tensor->data = address;
    tensor->buffer = impl_->buffer.get();
    impl_->tensor_bytes += bytes;
    hash.add(name);
    hash.add(&tensor->type, sizeof(tensor->type));
    hash.add(tensor->ne, sizeof(tensor->ne));
    hash.add(address, std::min<std::size_t>(bytes, 64));
    hash.add(address + bytes / 2, std::min<std::size_t>(bytes - bytes / 2, 64));
  }
  impl_->fingerprint = hash.value();
}

GgufFile::~GgufFile() = default;

std::optional<std::string> GgufFile::find_string(const std::string& key) const {
  const std::int64_t id = gguf_find_key(impl_->gguf.get(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(impl_->gguf.get(), id) != GGUF_TYPE_STRING) {
    throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key '" + key + "' is not a string");
  }
  return gguf_get_val_str(impl_->gguf.get(), id);
}

namespace {

// An integer of any width at `data`; nothing for another type.
std::optional<std::int64_t> integer_at(gguf_type type, const void* data, std::size_t index) {
  const auto at = [&](auto zero) { return static_cast<std::int64_t>(static_cast<const decltype(zero)*>(data)[index]); };
  switch (type) {
    case GGUF_TYPE_UINT8:
      return at(std::uint8_t{});
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:  // a byte
      return at(std::int8_t{});
    case GGUF_TYPE_UINT16:
      return at(std::uint16_t{});
    case GGUF_TYPE_INT16:
      return at(std::int16_t{});
    case GGUF_TYPE_UINT32:
      return at(std::uint32_t{});
    case GGUF_TYPE_INT32:
      return at(std::int32_t{});
    case GGUF_TYPE_UINT64:
      return at(std::uint64_t{});
    case GGUF_TYPE_INT64:
      return at(std::int64_t{});
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::int64_t> GgufFile::find_integer(const std::string& key) const {
  const gguf_context* gguf = impl_->gguf.get();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(gguf, id);
  if (type != GGUF_TYPE_ARRAY && type != GGUF_TYPE_STRING && type != GGUF_TYPE_BOOL) {
    if (const auto value = integer_at(type, gguf_get_val_data(gguf, id), 0)) return value;
  }
  throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key '" + key + "' is not one integer");
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(const std::string& key) const {
  const gguf_context* gguf = impl_->gguf.get();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) return std::vector<std::int64_t>{*find_integer(key)};
  const gguf_type type = gguf_get_arr_type(gguf, id);
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; type != GGUF_TYPE_STRING && i < gguf_get_arr_n(gguf, id); ++i) {
    const auto value = integer_at(type, gguf_get_arr_data(gguf, id), i);
    if (!value) break;
    values.push_back(*value);
  }
  if (values.empty()) {
    throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key '" + key + "' is not a list of integers");
  }
  return values;
}

std::optional<double> GgufFile::find_number(const std::string& key) const {
  const gguf_context* gguf = impl_->gguf.get();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf, id) == GGUF_TYPE_FLOAT32) return static_cast<double>(gguf_get_val_f32(gguf, id));
  if (gguf_get_kv_type(gguf, id) == GGUF_TYPE_FLOAT64) return gguf_get_val_f64(gguf, id);
  return static_cast<double>(*find_integer(key));
}

std::optional<bool> GgufFile::find_truth(const std::string& key) const {
  const std::int64_t id = gguf_find_key(impl_->gguf.get(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(impl_->gguf.get(), id) != GGUF_TYPE_BOOL) {
    throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key '" + key + "' is not a truth value");
  }
  return *static_cast<const std::int8_t*>(gguf_get_val_data(impl_->gguf.get(), id)) != 0;
}

bool GgufFile::has(const std::string& key) const { return gguf_find_key(impl_->gguf.get(), key.c_str()) >= 0; }

std::string GgufFile::string(const std::string& key) const {
  auto value = find_string(key);
  if (!value) throw Error(ErrorCode::kBadFile, "'" + path_ + "' has no metadata key '" + key + "'");
  return *value;
}

std::int64_t GgufFile::integer(const std::string& key, std::int64_t min, std::int64_t max) const {
  const auto value = find_integer(key);
  if (!value) throw Error(ErrorCode::kBadFile, "'" + path_ + "' has no metadata key '" + key + "'");
  if (*value < min || *value > max) {
    throw Error(ErrorCode::kBadFile, "'" + path_ + "': " + key + " is " + std::to_string(*value) + ", expected " +
                                         std::to_string(min) + " to " + std::to_string(max));
  }
  return *value;
}

ggml_tensor* GgufFile::find_tensor(const std::string& name) const {
  return ggml_get_tensor(impl_->tensors.get(), name.c_str());
}

std::int64_t GgufFile::n_tensors() const { return gguf_get_n_tensors(impl_->gguf.get()); }

ggml_tensor* GgufFile::tensor(std::int64_t index) const {
  return ggml_get_tensor(impl_->tensors.get(), gguf_get_tensor_name(impl_->gguf.get(), index));
}

std::uint64_t GgufFile::tensor_bytes() const { return impl_->tensor_bytes; }
std::uint64_t GgufFile::fingerprint() const { return impl_->fingerprint; }

void GgufFile::release(const void* data, std::size_t bytes) const {
  if (!impl_->bytes->mapped()) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace winnow
