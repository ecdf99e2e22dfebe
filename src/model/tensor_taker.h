// The reader of a model file's tensors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

#include "gguf/gguf_file.h"
#include "model/weights.h"

namespace winnow {

// Presence says whether a file must have a tensor.
enum class Presence { kOptional, kRequired };
inline Presence required_if(bool is_required) { return is_required ? Presence::kRequired : Presence::kOptional; }

// Finds tensors by name, checks their shapes and types, and remembers which were taken. Throws Error(kBadFile,
// kUnsupported).
class TensorTaker {
 public:
  explicit TensorTaker(const GgufFile& file) : file_(file) {}

  // Returns a matrix, or experts' matrices; null if it is optional and the file has none.
  ggml_tensor* matrix(const std::string& name, std::initializer_list<std::int64_t> shape,
                      Presence presence = Presence::kRequired) {
    return take(name, shape, presence);
  }
  // Returns float32 numbers that are multiplied by or added to activations, likewise.
  ggml_tensor* constants(const std::string& name, std::initializer_list<std::int64_t> shape,
                         Presence presence = Presence::kRequired);
  // Returns a norm's weights [n], with its bias [n] if it has one.
  NormWeights norm(const std::string& name, std::int64_t n, bool has_bias) {
    return {.weight = constants(name + ".weight", {n}), .bias = constants(name + ".bias", {n}, required_if(has_bias))};
  }
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // Throws Error(kUnsupported) that names a tensor which was not taken, unless its name begins as one of `skipped`.
  void refuse_leftovers(std::span<const std::string> skipped) const;

 private:
  ggml_tensor* take(const std::string& name, std::initializer_list<std::int64_t> shape, Presence presence);

  const GgufFile& file_;
  std::set<std::string> taken_;
};

}  // namespace winnow
