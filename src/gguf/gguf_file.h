// The GGUF file or files of a model, checked and mapped. Contents on which ggml would abort are refused with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "winnow/metadata_value.h"

struct ggml_tensor;

namespace winnow {

// A key and its new value (ModelOptions::metadata).
using MetadataChange = std::pair<std::string, MetadataValue>;

// A model's file or files. Immutable after construction; thread-safe.
class GgufFile {
 public:
  // Opens a file, or all parts of a model that is split into several, given any of them; they have to lie in one folder
  // (split_name.h). Every header is read and checked before anything is mapped. With use_mmap false the tensors are
  // read into memory. Throws Error: kNotFound, kIo, kBadFile, kOutOfMemory, and kInvalidArgument for a change of a key
  // that cannot be changed.
  GgufFile(const std::string& path, bool use_mmap, std::span<const MetadataChange> changes = {});
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }  // returns the path of the first part, which has the metadata
  std::vector<std::string> paths() const;            // returns the paths of all parts, in order

  // Metadata. The optional forms return nullopt if the key is absent, and throw as refuse_value() does if the value has
  // another type.
  std::optional<std::string> find_string(const std::string& key) const;
  std::optional<std::int64_t> find_integer(const std::string& key) const;
  // Returns an array's integers or truth values; a single one as an array of one.
  std::optional<std::vector<std::int64_t>> find_integers(const std::string& key) const;
  std::optional<double> find_number(const std::string& key) const;
  std::optional<bool> find_truth(const std::string& key) const;
  bool has(const std::string& key) const;
  // Throw Error(kBadFile) naming the key if it is absent, and as refuse_value() does if its value has another type or
  // is out of range.
  std::string string(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t max) const;
  // Throws an Error about a key's value, with what is wrong as a clause such as "is not an integer": kInvalidArgument
  // if a change gave the value, else kBadFile with the file's name.
  [[noreturn]] void refuse_value(const std::string& key, const std::string& fault) const;
  // Returns all metadata but lists, as Model::metadata does.
  std::vector<std::pair<std::string, std::string>> texts() const;

  // Returns the tensor of a name, whose data point into the mapping, or null if there is none.
  ggml_tensor* find_tensor(const std::string& name) const;
  // Returns the path of the part in which a tensor is.
  const std::string& path_of(const ggml_tensor* tensor) const;
  // Tensors are numbered part by part, in the order of their headers.
  std::int64_t n_tensors() const;
  ggml_tensor* tensor(std::int64_t index) const;

  std::uint64_t tensor_bytes() const;
  // Returns the FNV-1a hash of the architecture, the changes of metadata, the tensor table (names, types, shapes) and a
  // sample of each tensor's bytes, which tells models and their quantisations apart without reading the whole file.
  std::uint64_t fingerprint() const;
  // Returns a hash of the metadata's keys of the architecture and of the tokenizer, as they are after the changes. Two
  // files with the same tensors may differ in them: in their RoPE, say.
  std::uint64_t metadata_fingerprint() const;

  // Reports to the operating system that these bytes of the mapping will not be needed soon (they stay in the page
  // cache).
  void release(const void* data, std::size_t bytes) const;

 private:
  struct Impl;
  std::string path_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
