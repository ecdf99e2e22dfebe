// One GGUF file: a model, or a part of one. Its header is read and checked before its bytes are mapped.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <gguf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace winnow {

class GgufPart {
 public:
  // Reads the header, and checks that the file has the bytes of every tensor. Throws Error: kNotFound, kIo, kBadFile.
  explicit GgufPart(const std::string& path);
  ~GgufPart();
  GgufPart(const GgufPart&) = delete;
  GgufPart& operator=(const GgufPart&) = delete;

  // Has the tensors point to their bytes: in a mapping, or with use_mmap false in memory that the file is read into.
  // Throws Error: kIo, kOutOfMemory, and kBadFile for a file that has another size than before.
  void load(bool use_mmap);

  const std::string& path() const { return path_; }
  const gguf_context* header() const { return header_.get(); }
  gguf_context* header() { return header_.get(); }
  const std::vector<ggml_tensor*>& tensors() const { return tensors_; }  // in the header's order

  // Which part of a split model it is, as llama.cpp's splitter writes it.
  struct Split {
    int no, count;           // no counts from 0
    std::int64_t n_tensors;  // of all parts together
  };
  // Nothing for the only file of a model. Throws Error(kBadFile).
  std::optional<Split> split() const;

 private:
  struct GgufDeleter {
    void operator()(gguf_context* context) const { gguf_free(context); }
  };
  struct GgmlDeleter {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  struct BufferDeleter {
    void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  };
  class Bytes;

  std::size_t offset_of(std::size_t tensor) const;  // in the file

  std::string path_;
  std::size_t size_ = 0;  // bytes
  std::unique_ptr<gguf_context, GgufDeleter> header_;
  std::unique_ptr<ggml_context, GgmlDeleter> context_;  // of the tensors
  std::vector<ggml_tensor*> tensors_;
  std::unique_ptr<Bytes> bytes_;
  std::unique_ptr<ggml_backend_buffer, BufferDeleter> buffer_;
};

}  // namespace winnow
