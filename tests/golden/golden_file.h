// A GGUF file of the golden format: metadata and small tensors, read on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct gguf_context;
struct ggml_context;

namespace winnow::golden {

// In ggml's order: ne[0] is contiguous.
template <typename Number>
struct Tensor {
  std::vector<std::int64_t> ne;
  std::vector<Number> data;

  std::int64_t dim(std::size_t i) const { return i < ne.size() ? ne[i] : 1; }
};

// Every accessor throws std::runtime_error with the reason for something missing, damaged or of another type.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  const std::string& path() const { return path_; }
  bool has_key(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key) const;  // empty if there is no such key

  bool has(const std::string& tensor) const;
  bool has_prefix(const std::string& prefix) const;
  Tensor<float> floats(const std::string& tensor) const;  // F32, or F16 widened
  Tensor<std::int32_t> int32s(const std::string& tensor) const;
  std::vector<double> doubles(const std::string& tensor) const;  // the data of floats()

 private:
  struct Free {
    void operator()(gguf_context* context) const;
    void operator()(ggml_context* context) const;
  };

  std::int64_t key(const std::string& name) const;
  std::vector<char> bytes(const std::string& tensor, std::vector<std::int64_t>& ne, int& type) const;

  std::string path_;
  std::uint64_t file_size_ = 0;
  std::unique_ptr<gguf_context, Free> gguf_;
  std::unique_ptr<ggml_context, Free> tensors_;
};

}  // namespace winnow::golden
