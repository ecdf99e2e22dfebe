#include "model/weights.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string>

#include "kernels/entries.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr double kSmallest = 1e-9, kLargest = 1e12;  // of a model's constants

std::string shape_text(std::initializer_list<std::int64_t> shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text + "]";
}

// Takes tensors out of a file by name, checking shapes, and remembers which were taken.
class TensorTaker {
 public:
  explicit TensorTaker(const GgufFile& file) : file_(file) {}

  ggml_tensor* find(const std::string& name, std::initializer_list<std::int64_t> shape) {
    ggml_tensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) return nullptr;
    taken_.insert(name);
    std::size_t i = 0;
    bool same = true;
    for (const std::int64_t n : shape) same = same && tensor->ne[i++] == n;
    for (; i < GGML_MAX_DIMS; ++i) same = same && tensor->ne[i] == 1;
    if (!same) {
      throw Error(ErrorCode::kBadFile, "'" + file_.path() + "': tensor '" + name + "' has the shape " +
                                           shape_text({tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]}) +
                                           ", expected " + shape_text(shape) +
                                           ": the metadata and the weights do not belong together");
    }
    const bool is_vector = shape.size() == 1;
    if (is_vector && tensor->type != GGML_TYPE_F32) {
      throw Error(ErrorCode::kUnsupported, "'" + file_.path() + "': tensor '" + name + "' is " +
                                               ggml_type_name(tensor->type) + "; norms and biases must be f32");
    }
    if (!is_vector && tensor->type != GGML_TYPE_F32 && ggml_get_type_traits(tensor->type)->to_float == nullptr) {
      throw Error(ErrorCode::kUnsupported, "'" + file_.path() + "': tensor '" + name + "' has the weight type " +
                                               ggml_type_name(tensor->type) + ", which this ggml cannot read");
    }
    return tensor;
  }

  ggml_tensor* require(const std::string& name, std::initializer_list<std::int64_t> shape) {
    ggml_tensor* tensor = find(name, shape);
    if (tensor == nullptr) {
      throw Error(ErrorCode::kBadFile, "'" + file_.path() + "' has no tensor '" + name +
                                           "': the file is incomplete or of another kind than its metadata says");
    }
    return tensor;
  }

  void refuse_leftovers() const {
    for (std::int64_t i = 0; i < file_.n_tensors(); ++i) {
      const std::string name = ggml_get_name(file_.tensor(i));
      if (taken_.contains(name)) continue;
      const bool experts = name.find("_exps") != std::string::npos || name.find("ffn_gate_inp") != std::string::npos;
      throw Error(
          ErrorCode::kUnsupported,
          "'" + file_.path() + "' has a tensor that winnow would not use, '" + name + "'" +
              (experts ? ": mixture-of-experts models are not supported" : ": a variant that is not supported"));
    }
  }

 private:
  const GgufFile& file_;
  std::set<std::string> taken_;
};

// A constant of the model that ggml would abort on, or make nothing but NaN with, if it were out of range.
float number_in(const GgufFile& file, const std::string& key, double otherwise, double min, double max) {
  const double value = file.find_number(key).value_or(otherwise);
  if (value >= min && value <= max) return static_cast<float>(value);
  throw Error(ErrorCode::kBadFile, "'" + file.path() + "': " + key + " is " + std::to_string(value) + ", expected " +
                                       std::to_string(min) + " to " + std::to_string(max));
}

void read_rope(const GgufFile& file, const std::string& prefix, const Architecture& architecture, Hparams& h) {
  h.rope_mode = architecture.rope_mode;
  const std::int64_t n_rot = file.find_integer(prefix + "rope.dimension_count").value_or(h.head_dim);
  if (n_rot < 2 || n_rot > h.head_dim || n_rot % 2 != 0) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "': rope.dimension_count is " + std::to_string(n_rot) +
                                         ", expected an even number up to the head size " + std::to_string(h.head_dim));
  }
  h.n_rot = static_cast<int>(n_rot);
  h.rope_base = number_in(file, prefix + "rope.freq_base", 10000.0, kSmallest, kLargest);
  const std::string original = prefix + "rope.scaling.original_context_length";
  h.n_ctx_orig =
      file.find_integer(original) ? static_cast<std::int32_t>(file.integer(original, 1, 1 << 30)) : h.n_ctx_train;

  // Where the type is not said, a factor means linear scaling, as in llama.cpp.
  const std::string type = file.find_string(prefix + "rope.scaling.type").value_or("linear");
  if (type != "none" && type != "linear" && type != "yarn") {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': RoPE scaling of type '" + type +
                                             "' is not supported; winnow has: none, linear, yarn");
  }
  const bool is_linear = !file.find_number(prefix + "rope.scaling.factor");
  const std::string key = prefix + (is_linear ? "rope.scale_linear" : "rope.scaling.factor");
  const float factor = number_in(file, key, 1.0, 0, kLargest);  // 0: none
  if (type != "none" && factor > 0) h.rope_scale = 1.0F / factor;
  h.rope_attn_factor = number_in(file, prefix + "rope.scaling.attn_factor", 1.0, -kLargest, kLargest);
  if (type == "yarn") {
    const std::string yarn = prefix + "rope.scaling.yarn_";
    h.yarn_ext_factor = number_in(file, yarn + "ext_factor", 1.0, -kLargest, kLargest);
    h.yarn_beta_fast = number_in(file, yarn + "beta_fast", 32.0, kSmallest, kLargest);
    h.yarn_beta_slow = number_in(file, yarn + "beta_slow", 1.0, kSmallest, kLargest);
    // ggml_rope_ext multiplies by the YaRN magnitude 1 + 0.1 ln(factor) itself (YaRN, arXiv 2309.00071, eq. 22).
  }
}

}  // namespace

Hparams read_hparams(const GgufFile& file, const Architecture& architecture) {
  const std::string prefix = std::string(architecture.name) + ".";
  Hparams h;
  h.n_layer = static_cast<int>(file.integer(prefix + "block_count", 1, 4096));
  h.n_embd = static_cast<int>(file.integer(prefix + "embedding_length", 1, 1 << 20));
  h.n_ff = static_cast<int>(file.integer(prefix + "feed_forward_length", 1, 1 << 22));
  h.n_head = static_cast<int>(file.integer(prefix + "attention.head_count", 1, 1 << 14));
  const std::int64_t n_kv_head = file.find_integer(prefix + "attention.head_count_kv").value_or(h.n_head);
  h.n_ctx_train = static_cast<std::int32_t>(file.integer(prefix + "context_length", 1, 1 << 30));
  if (n_kv_head < 1 || h.n_head % n_kv_head != 0) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "': " + std::to_string(h.n_head) +
                                         " query heads cannot be shared among " + std::to_string(n_kv_head) +
                                         " KV heads");
  }
  h.n_kv_head = static_cast<int>(n_kv_head);
  const auto key_length = file.find_integer(prefix + "attention.key_length").value_or(h.n_embd / h.n_head);
  const auto value_length = file.find_integer(prefix + "attention.value_length").value_or(h.n_embd / h.n_head);
  if (value_length != key_length) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': keys of " + std::to_string(key_length) +
                                             " and values of " + std::to_string(value_length) +
                                             " numbers: different sizes are not supported");
  }
  using kernels::kHeadDimUnit, kernels::kMaxGroup, kernels::kMaxHeadDim;
  if (key_length < kHeadDimUnit || key_length > kMaxHeadDim || key_length % kHeadDimUnit != 0) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': the head size " + std::to_string(key_length) +
                                             " is not supported; it must be a multiple of " +
                                             std::to_string(kHeadDimUnit) + ", at most " + std::to_string(kMaxHeadDim));
  }
  h.head_dim = static_cast<int>(key_length);
  if (h.n_group() > kMaxGroup) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': " + std::to_string(h.n_group()) +
                                             " query heads for a KV head are not supported; it must be at most " +
                                             std::to_string(kMaxGroup));
  }
  h.norm_eps = number_in(file, prefix + "attention.layer_norm_rms_epsilon", 1e-5, 0, 1);
  const std::int64_t sliding_window = file.find_integer(prefix + "attention.sliding_window").value_or(0);
  h.sliding_window = static_cast<std::int32_t>(std::clamp<std::int64_t>(sliding_window, 0, 1 << 30));
  if (file.find_integer(prefix + "expert_count").value_or(0) > 0) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': mixture-of-experts models are not supported");
  }
  read_rope(file, prefix, architecture, h);

  const ggml_tensor* embeddings = file.find_tensor("token_embd.weight");
  if (embeddings == nullptr) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "' has no tensor 'token_embd.weight': not a complete model");
  }
  h.n_vocab = static_cast<int>(embeddings->ne[1]);
  if (architecture.configure != nullptr) architecture.configure(h);
  return h;
}

Weights load_weights(const GgufFile& file, const Architecture& architecture, const Hparams& h) {
  TensorTaker take(file);
  const std::int64_t n_embd = h.n_embd;
  const std::int64_t q_size = std::int64_t{h.n_head} * h.head_dim;
  const std::int64_t kv_size = std::int64_t{h.n_kv_head} * h.head_dim;

  Weights w;
  w.token_embd = take.require("token_embd.weight", {n_embd, h.n_vocab});
  w.output_norm = take.require("output_norm.weight", {n_embd});
  w.output = take.find("output.weight", {n_embd, h.n_vocab});
  if (w.output == nullptr) w.output = w.token_embd;
  ggml_tensor* rope_freqs = take.find("rope_freqs.weight", {h.n_rot / 2});

  for (int l = 0; l < h.n_layer; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    const auto vector = [&](const char* name, std::int64_t n, bool required) {
      return required ? take.require(blk + name, {n}) : take.find(blk + name, {n});
    };
    LayerWeights layer;
    layer.layer = l;
    layer.attn_norm = vector("attn_norm.weight", n_embd, true);
    layer.wq = take.require(blk + "attn_q.weight", {n_embd, q_size});
    layer.wk = take.require(blk + "attn_k.weight", {n_embd, kv_size});
    layer.wv = take.require(blk + "attn_v.weight", {n_embd, kv_size});
    layer.wo = take.require(blk + "attn_output.weight", {q_size, n_embd});
    layer.bq = vector("attn_q.bias", q_size, architecture.needs_qkv_bias);
    layer.bk = vector("attn_k.bias", kv_size, architecture.needs_qkv_bias);
    layer.bv = vector("attn_v.bias", kv_size, architecture.needs_qkv_bias);
    layer.bo = vector("attn_output.bias", n_embd, false);
    if (architecture.needs_qk_norm) {
      layer.q_norm = vector("attn_q_norm.weight", h.head_dim, true);
      layer.k_norm = vector("attn_k_norm.weight", h.head_dim, true);
    }
    layer.ffn_norm = vector("ffn_norm.weight", n_embd, true);
    layer.gate = take.require(blk + "ffn_gate.weight", {n_embd, h.n_ff});
    layer.up = take.require(blk + "ffn_up.weight", {n_embd, h.n_ff});
    layer.down = take.require(blk + "ffn_down.weight", {h.n_ff, n_embd});
    layer.gate_b = vector("ffn_gate.bias", h.n_ff, false);
    layer.up_b = vector("ffn_up.bias", h.n_ff, false);
    layer.down_b = vector("ffn_down.bias", n_embd, false);
    layer.rope_freqs = rope_freqs;
    // Older files repeat the factors in every layer, or carry a buffer that nothing uses.
    if (ggml_tensor* own = take.find(blk + "rope_freqs.weight", {h.n_rot / 2})) layer.rope_freqs = own;
    take.find(blk + "attn_rot_embd", {h.head_dim / 2});
    w.layers.push_back(layer);
  }
  take.refuse_leftovers();
  return w;
}

void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out) {
  const std::byte* src = static_cast<const std::byte*>(tensor->data) + static_cast<std::size_t>(row) * tensor->nb[1];
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(out, src, static_cast<std::size_t>(tensor->ne[0]) * sizeof(float));
  } else {
    ggml_get_type_traits(tensor->type)->to_float(src, out, tensor->ne[0]);
  }
}

}  // namespace winnow
