// A single GGUF file: a model, or a part of one. Its header is read and checked before its bytes are mapped.
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace winnow {

// An open file, with its header.
class GgufPart {
 public:
  // Reads the header, and checks that the file has the bytes of every tensor. Throws Error: kNotFound, kIo, kBadFile.
  explicit GgufPart(const std::string& path);
  ~GgufPart();
  GgufPart(const GgufPart&) = delete;
  GgufPart& operator=(const GgufPart&) = delete;

  // Makes the tensors point to their bytes: in a mapping, or with use_mmap false in memory into which the file is read.
  // Throws Error: kIo, kOutOfMemory, and kBadFile for a file whose size has changed since the constructor.
  void load(bool use_mmap);

  const std::string& path() const { return path_; }
  const gguf_context* header() const { return header_.get(); }
  gguf_context* header() { return header_.get(); }
  const std::vector<ggml_tensor*>& tensors() const { return tensors_; }  // in the header's order

  // The place of a part in a split model, as llama.cpp's splitter writes it.
  struct Split {
    int no, count;           // number of the part, from 0, and of all parts
    std::int64_t n_tensors;  // tensors of all parts together
  };
  // Returns the place, or nullopt for the only file of a model. Throws Error(kBadFile) if a number is missing or has
  // another type.
  std::optional<Split> split() const;

 private:
  class Bytes;

  std::size_t offset_of(std::size_t tensor) const;  // returns the offset of a tensor's bytes in the file

  std::string path_;
  std::size_t size_ = 0;  // bytes
  gguf_context_ptr header_;
  ggml_context_ptr context_;  // owner of the tensors
  std::vector<ggml_tensor*> tensors_;
  std::unique_ptr<Bytes> bytes_;
  ggml_backend_buffer_ptr buffer_;
};

}  // namespace winnow
