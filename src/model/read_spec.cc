#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/recurrences/delta_rule.h"
#include "kernels/recurrences/selective_scan.h"
#include "kernels/recurrences/short_convolution.h"
#include "model/metadata.h"
#include "model/weights.h"
#include "winnow/entries.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr int kMostLayers = 4096;
constexpr int kMostExperts = 4096;
constexpr int kMostHeads = 1 << 14;
constexpr int kWidest = 1 << 22;  // width of a feed-forward network

void check_heads(const Metadata& metadata, const LayerSpec& layer) {
  if (layer.n_kv_head < 1 || layer.n_head % layer.n_kv_head != 0) {
    metadata.refuse(ErrorCode::kBadFile, std::to_string(layer.n_head) + " query heads cannot be shared among " +
                                             std::to_string(layer.n_kv_head) + " KV heads");
  }
  using kernels::kHeadDimUnit, kernels::kMaxGroup, kernels::kMaxHeadDim;
  for (const int size : {layer.key_dim, layer.value_dim}) {
    if (kernels::AttentionShape::is_supported_size(size)) continue;
    metadata.refuse(ErrorCode::kUnsupported,
                    "the head size " + std::to_string(size) + " is not supported; it must be a multiple of " +
                        std::to_string(kHeadDimUnit) + ", at most " + std::to_string(kMaxHeadDim));
  }
  if (layer.n_group() > kMaxGroup) {
    metadata.refuse(ErrorCode::kUnsupported, std::to_string(layer.n_group()) +
                                                 " query heads for a KV head are not supported; it must be at most " +
                                                 std::to_string(kMaxGroup));
  }
}

// Returns a factor on YaRN's magnitude (arXiv 2309.00071, eq. 22), which ggml_rope_ext itself multiplies by. If the
// file has a multiplier for a second magnitude (DeepSeek's "mscale_all_dim"), the factor divides by that one.
float yarn_attn_factor(float factor, float log_multiplier) {
  if (log_multiplier == 0 || factor <= 1) return 1;
  return 1.0F / (1.0F + 0.1F * log_multiplier * std::log(factor));
}

// Throws Error(kUnsupported) if RoPE has sections that do not cover all dimensions. In a text all positions of a token
// are the same, so dimensions turn as they do without sections; those without a section would not turn at all.
void check_sections(const Metadata& metadata, const Architecture& architecture, int n_dims) {
  const std::string key = "rope.dimension_sections";
  std::vector<std::int64_t> sections = metadata.find_integers(key).value_or(std::vector<std::int64_t>{});
  if (std::all_of(sections.begin(), sections.end(), [](std::int64_t n) { return n == 0; })) return;
  sections.resize(4);
  bool is_covered = architecture.has_rope_sections;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_dims / 2); ++i) {
    const std::int64_t n = sections[i % 3];  // they are interleaved
    is_covered = is_covered && n >= 0 && static_cast<std::int64_t>(i / 3) < n;
  }
  if (is_covered) return;
  metadata.refuse(ErrorCode::kUnsupported,
                  "RoPE in sections like these (" + key + ", models that see images) is not supported");
}

// `slides` is set for a layer with a sliding window, which may have another number of rotated dimensions.
RopeSpec read_rope(const Metadata& metadata, const Architecture& architecture, int key_dim, std::int32_t n_ctx_train,
                   bool slides) {
  RopeSpec rope;
  rope.mode = architecture.rope_mode;
  std::string dimension_count = "rope.dimension_count";
  if (slides && metadata.has(dimension_count + "_swa")) dimension_count += "_swa";
  const int n_dims =
      metadata.integer_or(dimension_count, key_dim, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
  if (n_dims < 2 || n_dims > key_dim || n_dims % 2 != 0) {
    metadata.refuse(ErrorCode::kBadFile, dimension_count + " is " + std::to_string(n_dims) +
                                             ", expected an even number up to the head size " +
                                             std::to_string(key_dim));
  }
  check_sections(metadata, architecture, n_dims);
  rope.n_dims = n_dims;
  rope.base = metadata.number_or("rope.freq_base", 10000.0, kSmallestConstant, kLargestConstant);
  rope.n_ctx_orig = metadata.integer_or("rope.scaling.original_context_length", n_ctx_train, 1, 1 << 30);
  rope.is_extended = n_ctx_train > rope.n_ctx_orig;

  // If the type is not stated, a factor means linear scaling, as in llama.cpp.
  const std::string type = metadata.text_or("rope.scaling.type", "linear");
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
    metadata.refuse(ErrorCode::kUnsupported,
                    "RoPE scaling of type '" + type + "' is not supported; winnow has: none, linear, yarn, longrope");
  }
  if (type == "longrope") rope.factors = RopeFactors::kByContext;
  const bool has_factor = metadata.has("rope.scaling.factor");
  const float factor =  // 0: none
      metadata.number_or(has_factor ? "rope.scaling.factor" : "rope.scale_linear", 1.0, 0, kLargestConstant);
  if (type != "none" && factor > 0) rope.scale = 1.0F / factor;
  rope.attn_factor = metadata.number_or("rope.scaling.attn_factor", 1.0, -kLargestConstant, kLargestConstant);
  if (type == "yarn") {
    const std::string yarn = "rope.scaling.yarn_";
    // A negative factor means that none is set, as in llama.cpp, whose saver writes -1.
    const float ext_factor = metadata.number_or(yarn + "ext_factor", 1.0, -kLargestConstant, kLargestConstant);
    rope.yarn_ext_factor = ext_factor < 0 ? 1 : ext_factor;
    rope.yarn_beta_fast = metadata.number_or(yarn + "beta_fast", 32.0, kSmallestConstant, kLargestConstant);
    rope.yarn_beta_slow = metadata.number_or(yarn + "beta_slow", 1.0, kSmallestConstant, kLargestConstant);
    rope.attn_factor *= yarn_attn_factor(factor, metadata.number_or(yarn + "log_multiplier", 0, 0, 100));
  }
  return rope;
}

// Returns which layers have a sliding window. The file has a truth value for each, or a period whose last layer sees
// all tokens.
std::vector<bool> sliding_layers(const Metadata& metadata, const SlidingRule& rule, int n_layer) {
  const std::string key = "attention.sliding_window_pattern";
  std::vector<bool> slides(static_cast<std::size_t>(n_layer), true);
  const auto pattern = metadata.find_integers(key);
  if (pattern && (pattern->size() != 1 || n_layer == 1)) {
    const std::vector<int> each = metadata.of_layers(key, n_layer, 0, 1);
    for (std::size_t l = 0; l < slides.size(); ++l) slides[l] = each[l] != 0;
    return slides;
  }
  const std::int64_t period = pattern ? pattern->front() : rule.period;
  if (period < 0) metadata.refuse(ErrorCode::kBadFile, key + " is negative");
  for (std::size_t l = 0; period > 0 && l < slides.size(); ++l) {
    slides[l] = l % static_cast<std::size_t>(period) + 1 < static_cast<std::size_t>(period);
  }
  return slides;
}

void slide(const Metadata& metadata, const SlidingRule& rule, std::int32_t window, LayerSpec& layer) {
  layer.kind = LayerKind::kSlidingWindow;
  layer.sliding_window = window;
  const float base = rule.rope_base > 0 ? rule.rope_base : layer.rope.base;
  layer.rope.base =
      metadata.number_or("rope.freq_base_swa", static_cast<double>(base), kSmallestConstant, kLargestConstant);
  if (rule.is_rope_scaled) return;
  layer.rope.scale = layer.rope.attn_factor = 1;
  layer.rope.yarn_ext_factor = 0;
}

// Returns which layers are recurrent. Some files give them 0 KV heads; others have a list, or a period whose last layer
// has attention.
std::vector<bool> recurrent_layers(const Metadata& metadata, RecurrenceKind kind, const std::vector<int>& n_kv_head) {
  std::vector<bool> recurs(n_kv_head.size(), false);
  if (kind == RecurrenceKind::kNone) return recurs;
  if (kind != RecurrenceKind::kDeltaNet) {
    std::transform(n_kv_head.begin(), n_kv_head.end(), recurs.begin(), [](int n) { return n == 0; });
    return recurs;
  }
  const auto n_layer = static_cast<int>(recurs.size());
  const std::string key = "attention.recurrent_layers";
  if (metadata.has(key)) {
    const std::vector<int> each = metadata.of_layers(key, n_layer, 0, 1);
    std::transform(each.begin(), each.end(), recurs.begin(), [](int n) { return n != 0; });
    return recurs;
  }
  const int period = metadata.integer_or("full_attention_interval", 4, 1, kMostLayers);
  for (int l = 0; l < n_layer; ++l) recurs[static_cast<std::size_t>(l)] = (l + 1) % period != 0;
  return recurs;
}

void make_recurrent(const Metadata& metadata, const Architecture& architecture, LayerSpec& layer) {
  layer.kind = LayerKind::kRecurrent;
  layer.n_head = layer.n_kv_head = layer.key_dim = layer.value_dim = 0;
  RecurrenceSpec& recurrence = layer.recurrence;
  recurrence.kind = architecture.recurrence;
  if (recurrence.kind == RecurrenceKind::kShortConvolution) {
    recurrence.n_taps = metadata.integer("shortconv.l_cache", 2, kernels::kMaxTaps);
    return;
  }
  constexpr int kLargestHead = 1024;
  recurrence.n_taps = metadata.integer("ssm.conv_kernel", 2, kernels::kMaxTaps);
  static_assert(kernels::kDeltaUnit == kernels::kScanUnit);
  recurrence.key_dim = metadata.integer("ssm.state_size", kernels::kDeltaUnit, kLargestHead);
  recurrence.n_key_heads = metadata.integer("ssm.group_count", 1, kMostHeads);
  recurrence.n_value_heads = metadata.integer("ssm.time_step_rank", 1, kMostHeads);
  const int inner = metadata.integer("ssm.inner_size", 1, kWidest);
  if (recurrence.key_dim % kernels::kDeltaUnit != 0) {
    metadata.refuse(ErrorCode::kUnsupported, "ssm.state_size is " + std::to_string(recurrence.key_dim) +
                                                 ", expected a multiple of " + std::to_string(kernels::kDeltaUnit));
  }
  // In DeltaNet a value has as many numbers as a key; in Mamba-2 the inner size is divided among the heads.
  const bool is_mamba2 = recurrence.kind == RecurrenceKind::kMamba2;
  recurrence.value_dim = is_mamba2 ? inner / recurrence.n_value_heads : recurrence.key_dim;
  if (recurrence.n_values() != inner || recurrence.n_value_heads % recurrence.n_key_heads != 0) {
    metadata.refuse(ErrorCode::kBadFile,
                    "ssm.inner_size, ssm.state_size, ssm.time_step_rank and ssm.group_count do not match");
  }
}

// Returns these numbers, but for each 0, which llama.cpp's saver writes for a key that a file has not, the other one.
std::vector<int> unless_zero(std::vector<int> numbers, const std::vector<int>& otherwise) {
  for (std::size_t l = 0; l < numbers.size(); ++l) {
    if (numbers[l] == 0) numbers[l] = otherwise[l];
  }
  return numbers;
}

// Returns the width of one expert in every layer, of which a token takes n_used. n_ff has the feed-forward lengths.
std::vector<int> expert_widths(const Metadata& metadata, const FeedForwardSpec& spec, const std::vector<int>& n_ff,
                               int n_used) {
  std::vector<int> otherwise = n_ff;
  if (spec.is_width_of_all_used) {
    for (int& width : otherwise) width /= n_used;
  }
  const auto n_layer = static_cast<int>(n_ff.size());
  return unless_zero(metadata.of_layers("expert_feed_forward_length", n_layer, 0, kWidest, otherwise), otherwise);
}

// Reads the widths and numbers of experts. n_ff has the feed-forward length of every layer, 0 if the file has none.
void read_feed_forward(const Metadata& metadata, const std::vector<int>& n_ff, ModelSpec& spec) {
  int n_expert = metadata.integer_or("expert_count", 0, 0, kMostExperts);
  const FeedForwardSpec& first = spec.layers.front().feed_forward;
  if (first.routing == Routing::kNone) {
    if (n_expert > 1) {
      metadata.refuse(ErrorCode::kUnsupported, "mixture-of-experts models of this architecture are not supported");
    }
    n_expert = 0;  // a single expert is a dense network, as hunyuan-dense's files have it
  }
  std::vector<int> width = n_ff;
  int n_used = 0, shared_width = 0;
  if (n_expert > 0) {
    n_used = metadata.integer("expert_used_count", 1, n_expert);
    width = expert_widths(metadata, first, n_ff, n_used);
    shared_width = metadata.integer_or("expert_shared_feed_forward_length", 0, 0, kWidest);
  }
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    FeedForwardSpec& feed_forward = spec.layers[l].feed_forward;
    if (width[l] < 1) metadata.refuse(ErrorCode::kBadFile, "feed_forward_length is 0, expected at least 1");
    feed_forward.width = width[l];
    feed_forward.n_expert = n_expert;
    feed_forward.n_expert_used = n_used;
    feed_forward.shared_width = shared_width;
    if (n_expert > 0 && feed_forward.has_shared_gate && shared_width == 0) feed_forward.shared_width = n_ff[l];
  }
}

}  // namespace

ModelSpec read_spec(const GgufFile& file, const Architecture& architecture) {
  const Metadata metadata(file, architecture.name);
  if (!metadata.truth_or("attention.causal", true)) {
    metadata.refuse(ErrorCode::kUnsupported,
                    "attention in both directions (attention.causal is false), as embedding models like gte-Qwen2 and "
                    "pplx-embed have it, is not supported; use a model whose tokens see only those before them");
  }
  ModelSpec spec;
  const int n_layer = metadata.integer("block_count", 1, kMostLayers);  // includes those that predict further tokens
  spec.n_skipped_layers = metadata.integer_or("nextn_predict_layers", 0, 0, n_layer - 1);
  spec.n_embd = metadata.integer("embedding_length", 1, 1 << 20);
  spec.n_ctx_train = metadata.integer("context_length", 1, 1 << 30);
  spec.norm = architecture.layer.norm;
  const std::string eps =
      "attention.layer_norm_" + std::string(spec.norm.kind == NormKind::kRms ? "rms_" : "") + "epsilon";
  spec.norm.eps = metadata.number_or(eps, 1e-5, 0, 1);
  const bool needs_width = architecture.layer.feed_forward.routing == Routing::kNone;
  const std::vector<int> none(static_cast<std::size_t>(n_layer), 0);
  const std::vector<int> n_ff = needs_width ? metadata.of_layers("feed_forward_length", n_layer, 1, kWidest)
                                            : metadata.of_layers("feed_forward_length", n_layer, 0, kWidest, none);
  const std::vector<int> n_head = metadata.of_layers("attention.head_count", n_layer, 1, kMostHeads);
  std::vector<int> n_kv_head = metadata.of_layers("attention.head_count_kv", n_layer, -kMostHeads, kMostHeads, n_head);
  std::vector<int> head_dim;
  for (const int n : n_head) head_dim.push_back(spec.n_embd / n);
  std::vector<int> key_dim = metadata.of_layers("attention.key_length", n_layer, 1, 1 << 16, head_dim);
  std::vector<int> value_dim = metadata.of_layers("attention.value_length", n_layer, 1, 1 << 16, head_dim);
  if (architecture.has_latent_attention) {  // key_length is then the latent's, if these are present
    n_kv_head = n_head;
    key_dim = unless_zero(metadata.of_layers("attention.key_length_mla", n_layer, 0, 1 << 16, key_dim), key_dim);
    value_dim =
        unless_zero(metadata.of_layers("attention.value_length_mla", n_layer, 0, 1 << 16, value_dim), value_dim);
  }
  const SlidingRule& rule = architecture.sliding;
  const auto window = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      file.find_integer(std::string(architecture.name) + ".attention.sliding_window").value_or(rule.window), 0,
      1 << 30));
  std::vector<bool> slides = sliding_layers(metadata, rule, n_layer);
  if (window == 0 || rule.is_ignored) slides.assign(slides.size(), false);
  const std::vector<int> sliding_key_dim = metadata.of_layers("attention.key_length_swa", n_layer, 1, 1 << 16, key_dim);
  const std::vector<int> sliding_value_dim =
      metadata.of_layers("attention.value_length_swa", n_layer, 1, 1 << 16, value_dim);
  const std::vector<bool> recurs = recurrent_layers(metadata, architecture.recurrence, n_kv_head);
  for (std::size_t l = 0; l < static_cast<std::size_t>(n_layer - spec.n_skipped_layers); ++l) {
    LayerSpec& layer = spec.layers.emplace_back(architecture.layer);
    layer.n_head = n_head[l];
    layer.n_kv_head = n_kv_head[l];
    layer.key_dim = slides[l] ? sliding_key_dim[l] : key_dim[l];
    layer.value_dim = slides[l] ? sliding_value_dim[l] : value_dim[l];
    if (recurs[l]) {
      make_recurrent(metadata, architecture, layer);
      layer.norm = spec.norm;
      continue;
    }
    layer.kv_layer = static_cast<int>(l);
    check_heads(metadata, layer);
    layer.scale = 1.0F / std::sqrt(static_cast<float>(layer.key_dim));
    layer.has_sink_logits = file.find_tensor("blk." + std::to_string(l) + ".attn_sinks.weight") != nullptr;
    layer.rope = read_rope(metadata, architecture, layer.key_dim, spec.n_ctx_train, slides[l]);
    layer.norm = spec.norm;
    if (slides[l]) slide(metadata, rule, window, layer);
  }
  read_feed_forward(metadata, n_ff, spec);

  const ggml_tensor* embeddings = file.find_tensor("token_embd.weight");
  if (embeddings == nullptr) {
    metadata.refuse(ErrorCode::kBadFile, "there is no tensor 'token_embd.weight': not a complete model");
  }
  spec.n_vocab = static_cast<int>(embeddings->ne[1]);
  if (architecture.configure != nullptr) architecture.configure(metadata, spec);
  return spec;
}

}  // namespace winnow
