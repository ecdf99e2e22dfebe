// Takes tensors out of a model's file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

#include "gguf/gguf_file.h"
#include "model/weights.h"

namespace winnow {

// By name, checking shapes and types; remembers which were taken. Throws Error(kBadFile, kUnsupported).
class TensorTaker {
 public:
  explicit TensorTaker(const GgufFile& file) : file_(file) {}

  // A matrix, or experts' matrices. Null where the file has none and it is not required.
  ggml_tensor* matrix(const std::string& name, std::initializer_list<std::int64_t> shape, bool required = true) {
    return take(name, shape, false, required);
  }
  // What is multiplied by or added to activations: float32.
  ggml_tensor* constants(const std::string& name, std::initializer_list<std::int64_t> shape, bool required) {
    return take(name, shape, true, required);
  }
  // A norm's weights [n], with its bias.
  NormWeights norm(const std::string& name, std::int64_t n, bool has_bias) {
    return {.weight = constants(name + ".weight", {n}, true), .bias = constants(name + ".bias", {n}, has_bias)};
  }
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // skipped: names that begin so. Throws Error(kUnsupported) that names a tensor which nobody took.
  void refuse_leftovers(std::span<const std::string> skipped) const;

 private:
  ggml_tensor* take(const std::string& name, std::initializer_list<std::int64_t> shape, bool is_added, bool required);

  const GgufFile& file_;
  std::set<std::string> taken_;
};

}  // namespace winnow
