#include "model/tensor_taker.h"

#include <ggml.h>

#include <algorithm>

#include "winnow/error.h"

namespace winnow {
namespace {

std::string shape_text(std::initializer_list<std::int64_t> shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text + "]";
}

}  // namespace

void TensorTaker::refuse_leftovers(std::span<const std::string> skipped) const {
  for (std::int64_t i = 0; i < file_.n_tensors(); ++i) {
    const std::string name = ggml_get_name(file_.tensor(i));
    const auto begins_name = [&](const std::string& prefix) { return name.starts_with(prefix); };
    if (taken_.contains(name) || std::any_of(skipped.begin(), skipped.end(), begins_name)) continue;
    throw Error(ErrorCode::kUnsupported, "'" + file_.path_of(file_.tensor(i)) +
                                             "' has a tensor that winnow would not use, '" + name +
                                             "': a variant of the architecture that is not supported");
  }
}

ggml_tensor* TensorTaker::constants(const std::string& name, std::initializer_list<std::int64_t> shape,
                                    Presence presence) {
  ggml_tensor* tensor = take(name, shape, presence);
  if (tensor != nullptr && tensor->type != GGML_TYPE_F32) {
    throw Error(ErrorCode::kUnsupported, "'" + file_.path_of(tensor) + "': tensor '" + name + "' is " +
                                             ggml_type_name(tensor->type) + "; norms and biases must be f32");
  }
  return tensor;
}

ggml_tensor* TensorTaker::take(const std::string& name, std::initializer_list<std::int64_t> shape, Presence presence) {
  ggml_tensor* tensor = file_.find_tensor(name);
  if (tensor == nullptr && presence == Presence::kRequired) {
    throw Error(ErrorCode::kBadFile, "'" + file_.path() + "' has no tensor '" + name +
                                         "': the file is incomplete, or not of the kind that its metadata says");
  }
  if (tensor == nullptr) return nullptr;
  taken_.insert(name);
  const std::string& path = file_.path_of(tensor);
  std::size_t i = 0;
  bool same = true;
  for (const std::int64_t n : shape) same = same && tensor->ne[i++] == n;
  for (; i < GGML_MAX_DIMS; ++i) same = same && tensor->ne[i] == 1;
  if (!same) {
    throw Error(ErrorCode::kBadFile, "'" + path + "': tensor '" + name + "' has the shape " +
                                         shape_text({tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]}) +
                                         ", expected " + shape_text(shape) +
                                         ": the metadata and the weights do not match");
  }
  if (tensor->type != GGML_TYPE_F32 && ggml_get_type_traits(tensor->type)->to_float == nullptr) {
    throw Error(ErrorCode::kUnsupported, "'" + path + "': tensor '" + name + "' has the weight type " +
                                             ggml_type_name(tensor->type) + ", which this ggml cannot read");
  }
  return tensor;
}

}  // namespace winnow
