#include "model/weights.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

std::string shape_text(std::initializer_list<std::int64_t> shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text + "]";
}

void to_float(ggml_type type, const std::byte* row, std::int64_t n, float* out) {
  if (type == GGML_TYPE_F32) {
    std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
  } else {
    ggml_get_type_traits(type)->to_float(row, out, n);
  }
}

// Takes tensors out of a file by name, checking shapes, and remembers which were taken.
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

  // skipped: names that begin so.
  void refuse_leftovers(std::span<const std::string> skipped) const {
    for (std::int64_t i = 0; i < file_.n_tensors(); ++i) {
      const std::string name = ggml_get_name(file_.tensor(i));
      const auto begins_name = [&](const std::string& prefix) { return name.starts_with(prefix); };
      if (taken_.contains(name) || std::any_of(skipped.begin(), skipped.end(), begins_name)) continue;
      throw Error(ErrorCode::kUnsupported, "'" + file_.path() + "' has a tensor that winnow would not use, '" + name +
                                               "': a variant of the architecture that is not supported");
    }
  }

 private:
  ggml_tensor* take(const std::string& name, std::initializer_list<std::int64_t> shape, bool is_added, bool required) {
    ggml_tensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr && required) {
      throw Error(ErrorCode::kBadFile, "'" + file_.path() + "' has no tensor '" + name +
                                           "': the file is incomplete or of another kind than its metadata says");
    }
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
    if (is_added && tensor->type != GGML_TYPE_F32) {
      throw Error(ErrorCode::kUnsupported, "'" + file_.path() + "': tensor '" + name + "' is " +
                                               ggml_type_name(tensor->type) + "; norms and biases must be f32");
    }
    if (tensor->type != GGML_TYPE_F32 && ggml_get_type_traits(tensor->type)->to_float == nullptr) {
      throw Error(ErrorCode::kUnsupported, "'" + file_.path() + "': tensor '" + name + "' has the weight type " +
                                               ggml_type_name(tensor->type) + ", which this ggml cannot read");
    }
    return tensor;
  }

  const GgufFile& file_;
  std::set<std::string> taken_;
};

// Slices of fused tensors, as tensors of their own.
class Views {
 public:
  explicit Views(int n_layer) {
    constexpr std::size_t kPerLayer = 8;  // q, k, v with biases, or a recurrent layer's three; gate and up
    const std::size_t n = kPerLayer * static_cast<std::size_t>(n_layer);
    context_.reset(ggml_init({.mem_size = n * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}),
                   ggml_free);
    if (!context_) throw Error(ErrorCode::kOutOfMemory, "there is no memory for the table of tensors");
  }

  // Outputs first, ..., first + n - 1 of a matrix [n_in, n_out], or of every one of experts' matrices; of a bias
  // [n_out] its numbers. Null for null.
  ggml_tensor* slice(ggml_tensor* whole, std::int64_t first, std::int64_t n) {
    if (whole == nullptr) return nullptr;
    const bool is_matrix = whole->ne[1] > 1;
    ggml_tensor* part = is_matrix ? ggml_new_tensor_3d(context_.get(), whole->type, whole->ne[0], n, whole->ne[2])
                                  : ggml_new_tensor_1d(context_.get(), whole->type, n);
    part->data = static_cast<std::byte*>(whole->data) + static_cast<std::size_t>(first) * whole->nb[is_matrix ? 1 : 0];
    part->nb[2] = is_matrix ? whole->nb[2] : part->nb[2];
    part->buffer = whole->buffer;
    return part;
  }

  // [n_in, n_out, n] as one matrix [n_in, n_out * n].
  ggml_tensor* rows(ggml_tensor* whole) {
    ggml_tensor* all = ggml_new_tensor_2d(context_.get(), whole->type, whole->ne[0], whole->ne[1] * whole->ne[2]);
    all->data = whole->data;
    all->buffer = whole->buffer;
    return all;
  }

  std::shared_ptr<ggml_context> context() const { return context_; }

 private:
  std::shared_ptr<ggml_context> context_;
};

// Matrices in another order than the file's, in memory of their own.
class Copies {
 public:
  // Heads' matrices [n, n_in, n_head] -> [n_in, n * n_head], so that a row makes an output. Quantised numbers become
  // f16.
  ggml_tensor* transposed(const ggml_tensor* heads) {
    const std::int64_t n = heads->ne[0], n_in = heads->ne[1], n_head = heads->ne[2];
    const bool is_kept = heads->type == GGML_TYPE_F32 || heads->type == GGML_TYPE_BF16;
    const ggml_type type = is_kept ? heads->type : GGML_TYPE_F16;
    const std::size_t bytes = ggml_row_size(type, n_in) * static_cast<std::size_t>(n * n_head);
    const std::shared_ptr<ggml_context> context(
        ggml_init({.mem_size = bytes + 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = false}),
        ggml_free);
    if (!context) throw Error(ErrorCode::kOutOfMemory, "there is no memory for the weights of latent attention");
    ggml_tensor* out = ggml_new_tensor_2d(context.get(), type, n_in, n * n_head);
    out->buffer = heads->buffer;
    std::vector<float> of_head(static_cast<std::size_t>(n * n_in)), row(static_cast<std::size_t>(n_in));
    for (std::int64_t h = 0; h < n_head; ++h) {
      const std::byte* head = static_cast<const std::byte*>(heads->data) + static_cast<std::size_t>(h) * heads->nb[2];
      for (std::int64_t i = 0; i < n_in; ++i) {
        to_float(heads->type, head + static_cast<std::size_t>(i) * heads->nb[1], n, of_head.data() + i * n);
      }
      for (std::int64_t o = 0; o < n; ++o) {
        for (std::int64_t i = 0; i < n_in; ++i)
          row[static_cast<std::size_t>(i)] = of_head[static_cast<std::size_t>(i * n + o)];
        std::byte* at = static_cast<std::byte*>(out->data) + static_cast<std::size_t>(h * n + o) * out->nb[1];
        if (type == GGML_TYPE_F32) {
          std::memcpy(at, row.data(), row.size() * sizeof(float));
        } else {
          ggml_get_type_traits(type)->from_float_ref(row.data(), at, n_in);
        }
      }
    }
    all_.push_back(context);
    return out;
  }
  std::vector<std::shared_ptr<ggml_context>> all() && { return std::move(all_); }

 private:
  std::vector<std::shared_ptr<ggml_context>> all_;
};

// Finds the tensors of one layer.
class LayerLoader {
 public:
  LayerLoader(TensorTaker& take, Views& views, Copies& copies, const LayerSpec& spec, std::int64_t n_embd, int layer)
      : take_(take),
        views_(views),
        copies_(copies),
        spec_(spec),
        n_embd_(n_embd),
        blk_("blk." + std::to_string(layer) + ".") {
    weights_.layer = layer;
  }

  LayerWeights load() {
    load_norms();
    if (spec_.kind == LayerKind::kRecurrent) {
      load_recurrence();
    } else {
      load_attention();
    }
    if (spec_.feed_forward.n_expert > 0) {
      load_experts();
    } else {
      load_feed_forward();
    }
    load_rope_factors();
    return weights_;
  }

 private:
  void load_attention() {
    if (spec_.latent_rank > 0) {
      load_latent();
    } else {
      load_qkv();
    }
    weights_.wo = take_.matrix(blk_ + "attn_output.weight", {spec_.output_size(), n_embd_});
    weights_.bo = bias("attn_output", n_embd_, spec_.has_output_bias);
    load_qk_norms();
    if (spec_.has_sinks) weights_.sinks = take_.constants(blk_ + "attn_sinks.weight", {spec_.n_head}, true);
  }

  void load_recurrence() {
    const RecurrenceSpec& spec = spec_.recurrence;
    if (spec.kind == RecurrenceKind::kMamba2) return load_mamba2();
    if (spec.kind == RecurrenceKind::kShortConvolution) {
      weights_.conv = take_.constants(blk_ + "shortconv.conv.weight", {spec.n_taps, n_embd_}, true);
      weights_.conv_in = take_.matrix(blk_ + "shortconv.in_proj.weight", {n_embd_, 3 * n_embd_});
      weights_.conv_out = take_.matrix(blk_ + "shortconv.out_proj.weight", {n_embd_, n_embd_});
      return;
    }
    const std::int64_t n_channels = spec.n_channels(n_embd_), n_heads = spec.n_value_heads;
    weights_.conv = take_.constants(blk_ + "ssm_conv1d.weight", {spec.n_taps, n_channels}, true);
    weights_.conv_in = take_.matrix(blk_ + "attn_qkv.weight", {n_embd_, n_channels});
    weights_.conv_out = take_.matrix(blk_ + "ssm_out.weight", {spec.n_values(), n_embd_});
    weights_.state_gate = take_.matrix(blk_ + "attn_gate.weight", {n_embd_, spec.n_values()});
    weights_.state_alpha = take_.matrix(blk_ + "ssm_alpha.weight", {n_embd_, n_heads});
    weights_.state_beta = take_.matrix(blk_ + "ssm_beta.weight", {n_embd_, n_heads});
    weights_.state_decay = take_.constants(blk_ + "ssm_a", {n_heads}, true);
    weights_.state_decay_bias = take_.constants(blk_ + "ssm_dt.bias", {n_heads}, true);
    weights_.state_norm = take_.constants(blk_ + "ssm_norm.weight", {spec.value_dim}, true);
  }

  // One tensor projects to the output's gate, the convolution's channels and the decay.
  void load_mamba2() {
    const RecurrenceSpec& spec = spec_.recurrence;
    const std::int64_t n_channels = spec.n_channels(n_embd_), n_values = spec.n_values(), n_heads = spec.n_value_heads;
    ggml_tensor* fused = take_.matrix(blk_ + "ssm_in.weight", {n_embd_, n_values + n_channels + n_heads});
    weights_.state_gate = views_.slice(fused, 0, n_values);
    weights_.conv_in = views_.slice(fused, n_values, n_channels);
    weights_.state_alpha = views_.slice(fused, n_values + n_channels, n_heads);
    weights_.conv = take_.constants(blk_ + "ssm_conv1d.weight", {spec.n_taps, n_channels}, true);
    weights_.conv_b = bias("ssm_conv1d", n_channels, false);
    weights_.conv_out = take_.matrix(blk_ + "ssm_out.weight", {n_values, n_embd_});
    weights_.state_decay = take_.constants(blk_ + "ssm_a", {1, n_heads}, true);
    weights_.state_decay_bias = bias("ssm_dt", n_heads, true);
    weights_.state_skip = take_.constants(blk_ + "ssm_d", {1, n_heads}, true);
    weights_.state_norm =
        take_.constants(blk_ + "ssm_norm.weight", {n_values / spec.n_key_heads, spec.n_key_heads}, true);
  }

  ggml_tensor* bias(const char* name, std::int64_t n, bool required) {
    return take_.constants(blk_ + name + ".bias", {n}, required);
  }

  void load_norms() {
    const auto norm = [&](const char* name) { return take_.norm(blk_ + name, n_embd_, spec_.has_norm_bias); };
    if (spec_.norms != NormPlacement::kAfter) {
      weights_.attn_norm = norm("attn_norm");
      if (!spec_.is_parallel) weights_.ffn_norm = norm(spec_.ffn_norm_name);
    }
    if (spec_.norms != NormPlacement::kBefore) {
      weights_.attn_post_norm = norm("post_attention_norm");
      weights_.ffn_post_norm = norm("post_ffw_norm");
    }
  }

  // In one tensor or in three.
  void load_qkv() {
    const std::int64_t q = spec_.q_size() * (spec_.has_output_gate ? 2 : 1), k = spec_.k_size(), v = spec_.v_size();
    if (take_.has(blk_ + "attn_qkv.weight")) {
      ggml_tensor* fused = take_.matrix(blk_ + "attn_qkv.weight", {n_embd_, q + k + v});
      weights_.wq = views_.slice(fused, 0, q);
      weights_.wk = views_.slice(fused, q, k);
      weights_.wv = views_.slice(fused, q + k, v);
    } else {
      weights_.wq = take_.matrix(blk_ + "attn_q.weight", {n_embd_, q});
      weights_.wk = take_.matrix(blk_ + "attn_k.weight", {n_embd_, k});
      weights_.wv = take_.matrix(blk_ + "attn_v.weight", {n_embd_, v});
    }
    if (ggml_tensor* fused = take_.constants(blk_ + "attn_qkv.bias", {q + k + v}, false)) {
      weights_.bq = views_.slice(fused, 0, q);
      weights_.bk = views_.slice(fused, q, k);
      weights_.bv = views_.slice(fused, q + k, v);
    } else {
      weights_.bq = bias("attn_q", q, spec_.has_qkv_bias);
      weights_.bk = bias("attn_k", k, spec_.has_qkv_bias);
      weights_.bv = bias("attn_v", v, spec_.has_qkv_bias);
    }
  }

  void load_latent() {
    const std::int64_t n_head = spec_.n_head, rank = spec_.latent_rank, n_rotated = spec_.rope.n_dims;
    const std::int64_t n_fixed = spec_.key_dim - n_rotated;
    if (spec_.query_rank > 0) {
      weights_.query_a = take_.matrix(blk_ + "attn_q_a.weight", {n_embd_, spec_.query_rank});
      weights_.query_a_norm = take_.constants(blk_ + "attn_q_a_norm.weight", {spec_.query_rank}, true);
      weights_.wq = take_.matrix(blk_ + "attn_q_b.weight", {spec_.query_rank, spec_.q_size()});
    } else {
      weights_.wq = take_.matrix(blk_ + "attn_q.weight", {n_embd_, spec_.q_size()});
    }
    weights_.latent = take_.matrix(blk_ + "attn_kv_a_mqa.weight", {n_embd_, rank + n_rotated});
    weights_.latent_norm = take_.constants(blk_ + "attn_kv_a_norm.weight", {rank}, true);
    if (take_.has(blk_ + "attn_kv_b.weight")) {
      weights_.latent_kv = take_.matrix(blk_ + "attn_kv_b.weight", {rank, n_head * (n_fixed + spec_.value_dim)});
      return;
    }
    weights_.latent_k = copies_.transposed(take_.matrix(blk_ + "attn_k_b.weight", {n_fixed, rank, n_head}));
    ggml_tensor* values = take_.matrix(blk_ + "attn_v_b.weight", {rank, spec_.value_dim, n_head});
    weights_.latent_v = views_.rows(values);
  }

  void load_qk_norms() {
    const std::string q = blk_ + "attn_q_norm.weight", k = blk_ + "attn_k_norm.weight";
    switch (spec_.qk_norm) {
      case QkNorm::kNone:
        return;
      case QkNorm::kHead:
        weights_.q_norm = take_.constants(q, {spec_.key_dim}, true);
        weights_.k_norm = take_.constants(k, {spec_.key_dim}, true);
        return;
      case QkNorm::kOwnHead:
        weights_.q_norm = take_.constants(q, {spec_.key_dim, spec_.n_head}, true);
        weights_.k_norm = take_.constants(k, {spec_.key_dim, spec_.n_kv_head}, true);
        return;
      case QkNorm::kProjection:
        weights_.q_norm = take_.constants(q, {spec_.q_size()}, true);
        weights_.k_norm = take_.constants(k, {spec_.k_size()}, true);
        return;
    }
  }

  void load_feed_forward() {
    const FeedForwardSpec& spec = spec_.feed_forward;
    const std::int64_t n_ff = spec.width;
    const bool biased = spec_.has_feed_forward_bias;
    if (spec.is_gate_in_up) {
      ggml_tensor* fused = take_.matrix(blk_ + "ffn_up.weight", {n_embd_, 2 * n_ff});
      weights_.gate = views_.slice(fused, 0, n_ff);
      weights_.up = views_.slice(fused, n_ff, n_ff);
    } else {
      weights_.up = take_.matrix(blk_ + "ffn_up.weight", {n_embd_, n_ff});
      weights_.up_b = bias("ffn_up", n_ff, biased);
      if (spec.is_gated) {
        weights_.gate = take_.matrix(blk_ + "ffn_gate.weight", {n_embd_, n_ff});
        weights_.gate_b = bias("ffn_gate", n_ff, biased);
      }
    }
    weights_.down = take_.matrix(blk_ + "ffn_down.weight", {n_ff, n_embd_});
    weights_.down_b = bias("ffn_down", n_embd_, biased);
  }

  void load_experts() {
    const FeedForwardSpec& spec = spec_.feed_forward;
    const std::int64_t n_ff = spec.width, n_expert = spec.n_expert, n_shared = spec.shared_width;
    const bool biased = spec_.has_feed_forward_bias;
    const auto biases = [&](const char* name, std::int64_t n) {
      return take_.constants(blk_ + name + ".bias", {n, n_expert}, biased);
    };
    weights_.router = take_.matrix(blk_ + "ffn_gate_inp.weight", {n_embd_, n_expert});
    weights_.router_b = bias("ffn_gate_inp", n_expert, biased);
    weights_.choice_b = bias("exp_probs_b", n_expert, false);
    if (ggml_tensor* fused = take_.matrix(blk_ + "ffn_gate_up_exps.weight", {n_embd_, 2 * n_ff, n_expert}, false)) {
      weights_.gate_experts = views_.slice(fused, 0, n_ff);
      weights_.up_experts = views_.slice(fused, n_ff, n_ff);
    } else {
      weights_.gate_experts = take_.matrix(blk_ + "ffn_gate_exps.weight", {n_embd_, n_ff, n_expert});
      weights_.up_experts = take_.matrix(blk_ + "ffn_up_exps.weight", {n_embd_, n_ff, n_expert});
    }
    weights_.down_experts = take_.matrix(blk_ + "ffn_down_exps.weight", {n_ff, n_embd_, n_expert});
    weights_.gate_experts_b = biases("ffn_gate_exps", n_ff);
    weights_.up_experts_b = biases("ffn_up_exps", n_ff);
    weights_.down_experts_b = biases("ffn_down_exps", n_embd_);
    if (n_shared == 0) return;
    if (spec.has_shared_gate) {
      weights_.shared_gate = take_.matrix(blk_ + "ffn_gate_inp_shexp.weight", {n_embd_});
    }
    weights_.gate = take_.matrix(blk_ + "ffn_gate_shexp.weight", {n_embd_, n_shared});
    weights_.up = take_.matrix(blk_ + "ffn_up_shexp.weight", {n_embd_, n_shared});
    weights_.down = take_.matrix(blk_ + "ffn_down_shexp.weight", {n_shared, n_embd_});
  }

  void load_rope_factors() {
    if (spec_.rope.n_dims == 0) return;
    const std::int64_t n = spec_.rope.n_dims / 2;
    const bool required = spec_.rope.needs_factors;
    // Two sets for prompts up to the original context and beyond; the model's own context says which it is for.
    ggml_tensor* longer = take_.constants("rope_factors_long.weight", {n}, required);
    ggml_tensor* shorter = take_.constants("rope_factors_short.weight", {n}, required);
    weights_.rope_freqs = spec_.rope.is_extended ? longer : shorter;
    if (ggml_tensor* only = take_.constants("rope_freqs.weight", {n}, false)) weights_.rope_freqs = only;
    // Older files repeat the factors in every layer, or carry a buffer that nothing uses.
    if (ggml_tensor* own = take_.constants(blk_ + "rope_freqs.weight", {n}, false)) weights_.rope_freqs = own;
    take_.constants(blk_ + "attn_rot_embd", {spec_.key_dim / 2}, false);
  }

  TensorTaker& take_;
  Views& views_;
  Copies& copies_;
  const LayerSpec& spec_;
  std::int64_t n_embd_;
  std::string blk_;
  LayerWeights weights_;
};

}  // namespace

std::vector<ggml_tensor*> LayerWeights::matrices() const {
  std::vector<ggml_tensor*> all = {query_a,   wq,      wk,       wv,         wo,   latent, latent_k, latent_v,
                                   latent_kv, conv_in, conv_out, state_gate, gate, up,     down};
  std::erase(all, nullptr);
  return all;
}

Weights load_weights(const GgufFile& file, const ModelSpec& spec) {
  TensorTaker take(file);
  Views views(spec.n_layer());
  Copies copies;
  const std::int64_t n_embd = spec.n_embd;

  Weights w;
  w.views = views.context();
  w.token_embd = take.matrix("token_embd.weight", {n_embd, spec.n_vocab});
  w.output_norm = take.norm(spec.output_norm_name, n_embd, spec.layers.front().has_norm_bias);
  w.output = take.matrix("output.weight", {n_embd, spec.n_vocab}, false);
  w.output_b = take.constants("output.bias", {spec.n_vocab}, false);
  if (w.output == nullptr) w.output = w.token_embd;
  for (int l = 0; l < spec.n_layer(); ++l) {
    w.layers.push_back(LayerLoader(take, views, copies, spec.layers[static_cast<std::size_t>(l)], n_embd, l).load());
  }
  std::vector<std::string> skipped;
  for (int l = 0; l < spec.n_skipped_layers; ++l) skipped.push_back("blk." + std::to_string(spec.n_layer() + l) + ".");
  take.refuse_leftovers(skipped);
  w.copies = std::move(copies).all();
  return w;
}

void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out) {
  const std::byte* src = static_cast<const std::byte*>(tensor->data) + static_cast<std::size_t>(row) * tensor->nb[1];
  to_float(tensor->type, src, tensor->ne[0], out);
}

}  // namespace winnow
