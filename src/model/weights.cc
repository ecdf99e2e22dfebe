#include "model/weights.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "winnow/entries.h"
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

// A whole number of every layer: an array with one for each, or one number for all.
std::vector<int> layer_integers(const GgufFile& file, const std::string& key, int n_layer, std::int64_t min,
                                std::int64_t max, std::optional<std::vector<int>> otherwise = std::nullopt) {
  const std::optional<std::vector<std::int64_t>> found = file.find_integers(key);
  if (!found) {
    if (otherwise) return *otherwise;
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "' has no metadata key '" + key + "'");
  }
  const auto n = static_cast<std::size_t>(n_layer);
  if (found->size() != 1 && found->size() != n) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "': " + key + " has " + std::to_string(found->size()) +
                                         " numbers, the model " + std::to_string(n_layer) + " layers");
  }
  std::vector<int> values;
  for (std::size_t l = 0; l < n; ++l) {
    const std::int64_t value = (*found)[found->size() == 1 ? 0 : l];
    if (value < min || value > max) {
      throw Error(ErrorCode::kBadFile, "'" + file.path() + "': " + key + " is " + std::to_string(value) +
                                           ", expected " + std::to_string(min) + " to " + std::to_string(max));
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

void check_heads(const GgufFile& file, const LayerSpec& layer) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    throw Error(code, "'" + file.path() + "': " + what);
  };
  if (layer.n_kv_head < 1 || layer.n_head % layer.n_kv_head != 0) {
    refuse(ErrorCode::kBadFile, std::to_string(layer.n_head) + " query heads cannot be shared among " +
                                    std::to_string(layer.n_kv_head) + " KV heads");
  }
  using kernels::kHeadDimUnit, kernels::kMaxGroup, kernels::kMaxHeadDim;
  for (const int size : {layer.key_dim, layer.value_dim}) {
    if (kernels::AttentionShape::is_supported_size(size)) continue;
    refuse(ErrorCode::kUnsupported, "the head size " + std::to_string(size) +
                                        " is not supported; it must be a multiple of " + std::to_string(kHeadDimUnit) +
                                        ", at most " + std::to_string(kMaxHeadDim));
  }
  if (layer.n_group() > kMaxGroup) {
    refuse(ErrorCode::kUnsupported, std::to_string(layer.n_group()) +
                                        " query heads for a KV head are not supported; it must be at most " +
                                        std::to_string(kMaxGroup));
  }
}

RopeSpec read_rope(const GgufFile& file, const std::string& prefix, const Architecture& architecture, int key_dim,
                   std::int32_t n_ctx_train) {
  RopeSpec rope;
  rope.mode = architecture.rope_mode;
  const std::int64_t n_dims = file.find_integer(prefix + "rope.dimension_count").value_or(key_dim);
  if (n_dims < 2 || n_dims > key_dim || n_dims % 2 != 0) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "': rope.dimension_count is " + std::to_string(n_dims) +
                                         ", expected an even number up to the head size " + std::to_string(key_dim));
  }
  rope.n_dims = static_cast<int>(n_dims);
  rope.base = number_in(file, prefix + "rope.freq_base", 10000.0, kSmallest, kLargest);
  const std::string original = prefix + "rope.scaling.original_context_length";
  rope.n_ctx_orig =
      file.find_integer(original) ? static_cast<std::int32_t>(file.integer(original, 1, 1 << 30)) : n_ctx_train;

  // Where the type is not said, a factor means linear scaling, as in llama.cpp.
  const std::string type = file.find_string(prefix + "rope.scaling.type").value_or("linear");
  if (type != "none" && type != "linear" && type != "yarn") {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': RoPE scaling of type '" + type +
                                             "' is not supported; winnow has: none, linear, yarn");
  }
  const bool is_linear = !file.find_number(prefix + "rope.scaling.factor");
  const std::string key = prefix + (is_linear ? "rope.scale_linear" : "rope.scaling.factor");
  const float factor = number_in(file, key, 1.0, 0, kLargest);  // 0: none
  if (type != "none" && factor > 0) rope.scale = 1.0F / factor;
  rope.attn_factor = number_in(file, prefix + "rope.scaling.attn_factor", 1.0, -kLargest, kLargest);
  if (type == "yarn") {
    const std::string yarn = prefix + "rope.scaling.yarn_";
    rope.yarn_ext_factor = number_in(file, yarn + "ext_factor", 1.0, -kLargest, kLargest);
    rope.yarn_beta_fast = number_in(file, yarn + "beta_fast", 32.0, kSmallest, kLargest);
    rope.yarn_beta_slow = number_in(file, yarn + "beta_slow", 1.0, kSmallest, kLargest);
    // ggml_rope_ext multiplies by the YaRN magnitude 1 + 0.1 ln(factor) itself (YaRN, arXiv 2309.00071, eq. 22).
  }
  return rope;
}

// Which layers slide: an array with a truth value for each, or a period of which the last layer sees all; without
// either all of them do.
std::vector<bool> sliding_layers(const GgufFile& file, const std::string& key, int n_layer) {
  std::vector<bool> slides(static_cast<std::size_t>(n_layer), true);
  const std::optional<std::vector<std::int64_t>> pattern = file.find_integers(key);
  if (!pattern) return slides;
  if (pattern->size() != 1 || n_layer == 1) {
    const std::vector<int> each = layer_integers(file, key, n_layer, 0, 1);
    for (std::size_t l = 0; l < slides.size(); ++l) slides[l] = each[l] != 0;
    return slides;
  }
  if (pattern->front() < 0) throw Error(ErrorCode::kBadFile, "'" + file.path() + "': " + key + " is negative");
  const auto period = static_cast<std::size_t>(pattern->front());
  for (std::size_t l = 0; period > 0 && l < slides.size(); ++l) slides[l] = l % period + 1 < period;
  return slides;
}

}  // namespace

ModelSpec read_spec(const GgufFile& file, const Architecture& architecture) {
  const std::string prefix = std::string(architecture.name) + ".";
  ModelSpec spec;
  const auto n_layer = static_cast<int>(file.integer(prefix + "block_count", 1, 4096));
  spec.n_embd = static_cast<int>(file.integer(prefix + "embedding_length", 1, 1 << 20));
  spec.n_ctx_train = static_cast<std::int32_t>(file.integer(prefix + "context_length", 1, 1 << 30));
  spec.norm_eps = number_in(file, prefix + "attention.layer_norm_rms_epsilon", 1e-5, 0, 1);
  if (file.find_integer(prefix + "expert_count").value_or(0) > 0) {
    throw Error(ErrorCode::kUnsupported, "'" + file.path() + "': mixture-of-experts models are not supported");
  }
  const std::vector<int> n_ff = layer_integers(file, prefix + "feed_forward_length", n_layer, 1, 1 << 22);
  const std::vector<int> n_head = layer_integers(file, prefix + "attention.head_count", n_layer, 1, 1 << 14);
  const std::vector<int> n_kv_head =
      layer_integers(file, prefix + "attention.head_count_kv", n_layer, -(1 << 14), 1 << 14, n_head);
  std::vector<int> head_dim;
  for (const int n : n_head) head_dim.push_back(spec.n_embd / n);
  const std::vector<int> key_dim = layer_integers(file, prefix + "attention.key_length", n_layer, 1, 1 << 16, head_dim);
  const std::vector<int> value_dim =
      layer_integers(file, prefix + "attention.value_length", n_layer, 1, 1 << 16, head_dim);
  const auto window = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(file.find_integer(prefix + "attention.sliding_window").value_or(0), 0, 1 << 30));
  const std::vector<bool> slides = sliding_layers(file, prefix + "attention.sliding_window_pattern", n_layer);
  for (std::size_t l = 0; l < static_cast<std::size_t>(n_layer); ++l) {
    LayerSpec& layer = spec.layers.emplace_back();
    layer.n_head = n_head[l];
    layer.n_kv_head = n_kv_head[l];
    layer.key_dim = key_dim[l];
    layer.value_dim = value_dim[l];
    check_heads(file, layer);
    layer.window = slides[l] ? window : 0;
    layer.kind = layer.window > 0 ? LayerKind::kSlidingWindow : LayerKind::kFullAttention;
    layer.scale = 1.0F / std::sqrt(static_cast<float>(layer.key_dim));
    layer.soft_cap = number_in(file, prefix + "attn_logit_softcapping", 0, 0, kLargest);
    layer.has_sinks = file.find_tensor("blk." + std::to_string(l) + ".attn_sinks.weight") != nullptr;
    layer.rope = read_rope(file, prefix, architecture, layer.key_dim, spec.n_ctx_train);
    layer.has_qkv_bias = architecture.needs_qkv_bias;
    layer.has_qk_norm = architecture.needs_qk_norm;
    layer.norm_eps = spec.norm_eps;
    layer.feed_forward.width = n_ff[l];
  }

  const ggml_tensor* embeddings = file.find_tensor("token_embd.weight");
  if (embeddings == nullptr) {
    throw Error(ErrorCode::kBadFile, "'" + file.path() + "' has no tensor 'token_embd.weight': not a complete model");
  }
  spec.n_vocab = static_cast<int>(embeddings->ne[1]);
  if (architecture.configure != nullptr) architecture.configure(spec);
  return spec;
}

Weights load_weights(const GgufFile& file, const ModelSpec& spec) {
  TensorTaker take(file);
  const std::int64_t n_embd = spec.n_embd;

  Weights w;
  w.token_embd = take.require("token_embd.weight", {n_embd, spec.n_vocab});
  w.output_norm = take.require("output_norm.weight", {n_embd});
  w.output = take.find("output.weight", {n_embd, spec.n_vocab});
  if (w.output == nullptr) w.output = w.token_embd;

  for (int l = 0; l < spec.n_layer(); ++l) {
    const LayerSpec& s = spec.layers[static_cast<std::size_t>(l)];
    const std::string blk = "blk." + std::to_string(l) + ".";
    const auto vector = [&](const char* name, std::int64_t n, bool required) {
      return required ? take.require(blk + name, {n}) : take.find(blk + name, {n});
    };
    LayerWeights layer;
    layer.layer = l;
    layer.attn_norm = vector("attn_norm.weight", n_embd, true);
    layer.wq = take.require(blk + "attn_q.weight", {n_embd, s.q_size()});
    layer.wk = take.require(blk + "attn_k.weight", {n_embd, s.k_size()});
    layer.wv = take.require(blk + "attn_v.weight", {n_embd, s.v_size()});
    layer.wo = take.require(blk + "attn_output.weight", {s.output_size(), n_embd});
    layer.bq = vector("attn_q.bias", s.q_size(), s.has_qkv_bias);
    layer.bk = vector("attn_k.bias", s.k_size(), s.has_qkv_bias);
    layer.bv = vector("attn_v.bias", s.v_size(), s.has_qkv_bias);
    layer.bo = vector("attn_output.bias", n_embd, false);
    if (s.has_qk_norm) {
      layer.q_norm = vector("attn_q_norm.weight", s.key_dim, true);
      layer.k_norm = vector("attn_k_norm.weight", s.key_dim, true);
    }
    if (s.has_sinks) layer.sinks = vector("attn_sinks.weight", s.n_head, true);
    const std::int64_t n_ff = s.feed_forward.width;
    layer.ffn_norm = vector("ffn_norm.weight", n_embd, true);
    layer.gate = take.require(blk + "ffn_gate.weight", {n_embd, n_ff});
    layer.up = take.require(blk + "ffn_up.weight", {n_embd, n_ff});
    layer.down = take.require(blk + "ffn_down.weight", {n_ff, n_embd});
    layer.gate_b = vector("ffn_gate.bias", n_ff, false);
    layer.up_b = vector("ffn_up.bias", n_ff, false);
    layer.down_b = vector("ffn_down.bias", n_embd, false);
    layer.rope_freqs = take.find("rope_freqs.weight", {s.rope.n_dims / 2});
    // Older files repeat the factors in every layer, or carry a buffer that nothing uses.
    if (ggml_tensor* own = take.find(blk + "rope_freqs.weight", {s.rope.n_dims / 2})) layer.rope_freqs = own;
    take.find(blk + "attn_rot_embd", {s.key_dim / 2});
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
