#include "gguf/gguf_part.h"

#include <fcntl.h>
#include <ggml-cpu.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "gguf/ggml_log.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kLeastBytes = 24;  // size of a header

// An open file, for as long as it is read.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
      throw Error(code, "cannot open the model '" + path + "': " + std::strerror(errno));
    }
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // Returns the size in bytes. Throws Error(kBadFile) unless it is a regular file.
  std::size_t size() const {
    struct stat info {};
    if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
      throw Error(ErrorCode::kBadFile, "'" + path_ + "' is not a regular file: give the path of a .gguf file");
    }
    return static_cast<std::size_t>(info.st_size);
  }

  // Reads the next bytes. Throws Error(kIo), also if the file ends before.
  void read(std::byte* to, std::size_t n_bytes) const {
    for (std::size_t done = 0; done < n_bytes;) {
      const ssize_t n = ::read(descriptor_, to + done, std::min<std::size_t>(n_bytes - done, std::size_t{1} << 30));
      if (n == 0) throw Error(ErrorCode::kIo, "cannot read '" + path_ + "': the file shrank while it was read");
      if (n < 0) throw Error(ErrorCode::kIo, "cannot read '" + path_ + "': " + std::strerror(errno));
      done += static_cast<std::size_t>(n);
    }
  }

  int descriptor() const { return descriptor_; }

 private:
  const std::string& path_;
  int descriptor_;
};

}  // namespace

// The whole file as memory: mapped, or read into an anonymous mapping.
class GgufPart::Bytes {
 public:
  Bytes(const std::string& path, std::size_t size, bool use_mmap) : size_(size) {
    const OpenFile file(path);
    if (file.size() != size) {
      throw Error(ErrorCode::kBadFile, "'" + path + "' was written to while it was opened: load it again");
    }
    void* memory = use_mmap ? mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0)
                            : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(ErrorCode::kOutOfMemory, "cannot map '" + path + "' into memory: " + std::strerror(errno));
    }
    data_ = static_cast<std::byte*>(memory);
    if (use_mmap) return;
    try {
      file.read(data_, size_);
    } catch (const Error&) {
      munmap(data_, size_);
      throw;
    }
  }
  ~Bytes() { munmap(data_, size_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

GgufPart::GgufPart(const std::string& path) : path_(path) {
  silence_ggml();
  {
    const OpenFile file(path);
    size_ = file.size();
    if (size_ < kLeastBytes) {
      throw Error(ErrorCode::kBadFile, "'" + path + "' has only " + std::to_string(size_) + " bytes: not a GGUF file");
    }
    std::byte magic[4];
    file.read(magic, sizeof(magic));
    if (std::memcmp(magic, "GGUF", sizeof(magic)) != 0) {
      throw Error(ErrorCode::kBadFile,
                  "'" + path + "' does not begin with GGUF: not a model file that winnow can read");
    }
  }
  // ggml's reader checks every count against the bytes that are there.
  take_ggml_errors();
  ggml_context* context = nullptr;
  header_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &context}));
  context_.reset(context);
  if (!header_) {
    const std::string reason = take_ggml_errors();
    throw Error(ErrorCode::kBadFile, "'" + path + "' is damaged or not a complete GGUF file" +
                                         (reason.empty() ? std::string() : ": " + reason) +
                                         "; download or convert it again");
  }
  // Lists the tensors in one pass: ggml searches linearly for each name.
  for (ggml_tensor* t = ggml_get_first_tensor(context); t != nullptr; t = ggml_get_next_tensor(context, t)) {
    tensors_.push_back(t);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::size_t offset = offset_of(i), bytes = ggml_nbytes(tensors_[i]);
    if (offset <= size_ && bytes <= size_ - offset) continue;
    throw Error(ErrorCode::kBadFile, "'" + path + "' is truncated: tensor '" + ggml_get_name(tensors_[i]) +
                                         "' needs bytes up to " + std::to_string(offset + bytes) + ", the file has " +
                                         std::to_string(size_) + "; download it again");
  }
}

GgufPart::~GgufPart() = default;

void GgufPart::load(bool use_mmap) {
  bytes_ = std::make_unique<Bytes>(path_, size_, use_mmap);
  buffer_.reset(ggml_backend_cpu_buffer_from_ptr(bytes_->data(), size_));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i]->data = bytes_->data() + offset_of(i);
    tensors_[i]->buffer = buffer_.get();
  }
}

std::size_t GgufPart::offset_of(std::size_t tensor) const {
  return gguf_get_data_offset(header()) + gguf_get_tensor_offset(header(), static_cast<std::int64_t>(tensor));
}

std::optional<GgufPart::Split> GgufPart::split() const {
  // The types must match exactly: libllama, which reads the vocabulary, would abort on others.
  const auto value = [&](const char* key, gguf_type type) -> const void* {
    const std::int64_t id = gguf_find_key(header(), key);
    if (id < 0) {
      throw Error(ErrorCode::kBadFile,
                  "'" + path_ + "' is a part of a model, but lacks the metadata key '" + key + "'; download it again");
    }
    if (gguf_get_kv_type(header(), id) != type) {
      throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key '" + key + "' is not of type " +
                                           gguf_type_name(type) + ", as in all parts of models; download it again");
    }
    return gguf_get_val_data(header(), id);
  };
  constexpr const char* kCount = "split.count";
  if (gguf_find_key(header(), kCount) < 0) return std::nullopt;
  const int count = *static_cast<const std::uint16_t*>(value(kCount, GGUF_TYPE_UINT16));
  if (count <= 1) return std::nullopt;  // parts that were merged have 0
  return Split{.no = *static_cast<const std::uint16_t*>(value("split.no", GGUF_TYPE_UINT16)),
               .count = count,
               .n_tensors = *static_cast<const std::int32_t*>(value("split.tensors.count", GGUF_TYPE_INT32))};
}

}  // namespace winnow
