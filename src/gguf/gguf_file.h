// A model's GGUF file or files, checked and mapped: what ggml would abort on is refused here with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "winnow/model.h"

struct ggml_tensor;

namespace winnow {

using MetadataChange = std::pair<std::string, MetadataValue>;

// Immutable after construction; thread-safe.
class GgufFile {
 public:
  // path: of the file, or of any part of a model that is split into several (split_name.h), which all have to lie
  // beside it. Every header is read and checked before anything is mapped. Throws Error: kNotFound, kIo, kBadFile,
  // kOutOfMemory. With use_mmap false the tensors are read into memory of our own. changes: ModelOptions::metadata;
  // throws Error(kInvalidArgument) for a key that cannot be changed.
  GgufFile(const std::string& path, bool use_mmap, std::span<const MetadataChange> changes = {});
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }  // of the first part, which has the metadata
  std::vector<std::string> paths() const;            // of all parts, the first one first

  // Metadata. The optional forms give nothing when the key is absent and throw Error(kBadFile) on a wrong type.
  std::optional<std::string> find_string(const std::string& key) const;
  std::optional<std::int64_t> find_integer(const std::string& key) const;
  // An array's integers or truth values; a single one as an array of one.
  std::optional<std::vector<std::int64_t>> find_integers(const std::string& key) const;
  std::optional<double> find_number(const std::string& key) const;
  std::optional<bool> find_truth(const std::string& key) const;
  bool has(const std::string& key) const;
  std::string string(const std::string& key) const;  // throws Error(kBadFile) naming an absent key
  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t max) const;  // likewise, and out of range
  std::vector<std::pair<std::string, std::string>> texts() const;  // all but lists, as Model::metadata gives them

  // The tensors, their data pointing into the mapping, part by part in the order of their headers. Null if there is
  // none of that name.
  ggml_tensor* find_tensor(const std::string& name) const;
  const std::string& path_of(const ggml_tensor* tensor) const;  // of the part that it is in
  std::int64_t n_tensors() const;
  ggml_tensor* tensor(std::int64_t index) const;

  std::uint64_t tensor_bytes() const;
  // FNV-1a over the architecture, the dimensions and the tensor table (names, types, shapes) and a sample of each
  // tensor's bytes: tells models and their quantisations apart without reading the file.
  std::uint64_t fingerprint() const;

  // Tells the operating system that these bytes of the mapping will not be needed soon (they stay in the page cache).
  void release(const void* data, std::size_t bytes) const;

 private:
  struct Impl;
  std::string path_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
