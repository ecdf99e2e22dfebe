// A GGUF file of the golden format: metadata and small tensors, read on demand. It does not use ggml, which is missing
// where the cases run for another processor (make arm-test).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace winnow::golden {

// A tensor in ggml's order: ne[0] is contiguous.
template <typename Number>
struct Tensor {
  std::vector<std::int64_t> ne;
  std::vector<Number> data;

  std::int64_t dim(std::size_t i) const { return i < ne.size() ? ne[i] : 1; }
};

// Every accessor throws std::runtime_error with the reason if a value is missing, damaged or of another type.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  const std::string& path() const { return path_; }
  bool has_key(const std::string& key) const { return keys_.contains(key); }
  std::string text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key) const;  // empty if there is no such key
  int size(const std::string& name, int least = 0) const;            // the integer winnow.<name>: least to 2^20

  bool has(const std::string& tensor) const { return tensors_.contains(tensor); }
  bool has_prefix(const std::string& prefix) const;
  Tensor<float> floats(const std::string& tensor) const;                             // F32, or F16 widened
  std::vector<float> sized_floats(const std::string& tensor, std::int64_t n) const;  // the data of floats(): n numbers
  Tensor<std::int32_t> int32s(const std::string& tensor) const;
  std::vector<double> doubles(const std::string& tensor) const;  // the data of floats()

 private:
  using Value = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                             std::vector<std::string>>;
  struct TensorPlace {
    std::vector<std::int64_t> ne;
    std::uint32_t type = 0;   // ggml's number
    std::uint64_t begin = 0;  // offset in the file
    std::uint64_t n_bytes = 0;
  };
  class Reader;

  template <class Wanted>
  const Wanted& value(const std::string& key, const char* kind) const;
  const TensorPlace& tensor(const std::string& name) const;
  std::string_view bytes(const TensorPlace& place) const;

  std::string path_, bytes_;
  std::map<std::string, Value> keys_;
  std::map<std::string, TensorPlace> tensors_;
};

// Returns rows one after the other, as tensors have them.
std::vector<double> flatten(const std::vector<std::vector<double>>& rows);

}  // namespace winnow::golden
