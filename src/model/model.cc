#include "winnow/model.h"

#include <ggml.h>

#include <algorithm>
#include <map>

#include "base/process_memory.h"
#include "model/balanced_pairs.h"
#include "model/derived_tensors.h"
#include "model/model_impl.h"
#include "winnow/chat.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the pooling, which files number as llama.cpp does; 0 is none, and a ranking model (4) has no embeddings of
// its own.
std::optional<Pooling> pooling_of(const GgufFile& file, const Architecture& architecture) {
  switch (file.find_integer(std::string(architecture.name) + ".pooling_type").value_or(0)) {
    case 1:
      return Pooling::kMean;
    case 2:
      return Pooling::kCls;
    case 3:
      return Pooling::kLast;
    default:
      return std::nullopt;
  }
}

ModelInfo describe(const GgufFile& file, const Architecture& architecture, const ModelSpec& spec) {
  ModelInfo info{};
  info.architecture = std::string(architecture.name);
  info.name = file.find_string("general.name").value_or("");
  std::map<ggml_type, std::uint64_t> parameters_of_type;
  for (std::int64_t i = 0; i < file.n_tensors(); ++i) {
    const ggml_tensor* tensor = file.tensor(i);
    const auto n = static_cast<std::uint64_t>(ggml_nelements(tensor));
    info.n_parameters += n;
    parameters_of_type[tensor->type] += n;
  }
  std::uint64_t most = 0;
  for (const auto& [type, n] : parameters_of_type) {
    if (n <= most) continue;
    most = n;
    info.file_type = ggml_type_name(type);
  }
  info.bytes = file.tensor_bytes();
  info.n_embd = spec.n_embd;
  info.n_vocab = spec.n_vocab;
  info.n_ctx_train = spec.n_ctx_train;
  for (const LayerSpec& layer : spec.layers) {
    info.layers.push_back(
        {.kind = layer.kind,
         .n_head = layer.n_head,
         .n_kv_head = layer.owns_entries() ? layer.n_kv_head : 0,
         .key_dim = layer.key_dim,
         .value_dim = layer.value_dim,
         .n_ff = layer.feed_forward.width,
         .sliding_window = layer.sliding_window,
         .n_expert = layer.feed_forward.n_expert,
         .n_expert_used = layer.feed_forward.n_expert_used,
         .state_bytes = static_cast<std::size_t>(layer.recurrence.state_size(spec.n_embd)) * sizeof(float),
         .shared_n_ff = layer.feed_forward.shared_width,
         .kv_layer = layer.kv_layer});
  }
  info.pooling = pooling_of(file, architecture);
  info.fingerprint = file.fingerprint();
  info.metadata_fingerprint = file.metadata_fingerprint();
  return info;
}

}  // namespace

Model::Impl::Impl(const std::string& path, const ModelOptions& options)
    : file(path, options.use_mmap, options.metadata),
      architecture(find_architecture(file.string("general.architecture"))),
      spec(read_spec(file, architecture)),
      weights(load_weights(file, spec)),
      tokenizer(file.paths(), options.metadata),
      info(describe(file, architecture, spec)),
      chat_template(tokenizer.model(), options.chat_template),
      interleaves_(options.use_mmap && options.repack),
      is_balanced_(static_cast<std::size_t>(spec.n_layer())),
      is_seen_(static_cast<std::size_t>(spec.n_layer()) + 1) {
  if (tokenizer.n_vocab() > spec.n_vocab) {
    throw Error(ErrorCode::kBadFile, "'" + path + "': the tokenizer has " + std::to_string(tokenizer.n_vocab()) +
                                         " tokens, but the embeddings only " + std::to_string(spec.n_vocab));
  }
}

void Model::Impl::embed(Token token, float* hidden) const {
  dequantize_row(weights.token_embd, token, hidden);
  if (spec.embedding_scale == 1) return;
  std::for_each_n(hidden, spec.n_embd, [&](float& x) { x *= spec.embedding_scale; });
}

void Model::Impl::balance(int first, int last) const {
  const std::lock_guard lock(mutex_);
  for (auto l = static_cast<std::size_t>(first); l < static_cast<std::size_t>(last); ++l) {
    if (is_balanced_[l]) continue;
    LayerWeights& layer = weights.layers[l];
    if (const BalancedPairs pairs = balanced_pairs(spec.layers[l], layer); !pairs.key.empty()) {
      Copies copies;
      layer.q_scales = copies.constants(pairs.query, layer.bq);
      layer.k_scales = copies.constants(pairs.key, layer.bk);
      for (auto& copy : std::move(copies).all()) weights.copies.push_back(std::move(copy));
    }
    is_balanced_[l] = true;
  }
}

void Model::Impl::interleave(int first, int last, bool with_output, int n_threads) const {
  // The rest is left to the cache and everything else. With too little memory the mapping is kept, which can be read in
  // pieces.
  constexpr double kMostOfAvailable = 0.8;
  if (!interleaves_) return;
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<ggml_tensor**>> parts;  // one per layer, so that no more than one is in memory twice
  const auto is_new = [&](int i) {
    const bool is_seen = is_seen_.at(static_cast<std::size_t>(i));
    is_seen_.at(static_cast<std::size_t>(i)) = true;
    return !is_seen;
  };
  for (int l = first; l < last; ++l) {
    if (is_new(l)) parts.push_back(weights.layers[static_cast<std::size_t>(l)].places_of_products());
  }
  if (with_output && is_new(spec.n_layer())) parts.push_back({&weights.output});
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += InterleavedWeights::bytes(part);
  const bool has_memory = static_cast<double>(bytes) <= kMostOfAvailable * static_cast<double>(memory_available());
  if (!has_memory || bytes > address_space_left() / 2) return;
  for (const auto& part : parts) interleaved_.replace(part, file, n_threads);
}

std::size_t ModelInfo::state_bytes() const {
  std::size_t n = 0;
  for (const LayerInfo& layer : layers) n += layer.state_bytes;
  return n;
}

int ModelInfo::n_cut_heads() const {
  int n = 0;
  for (const LayerInfo& layer : layers) n += layer.n_evictable_heads();
  return n;
}

std::size_t ModelInfo::hidden_bytes_per_token() const {
  int n_used = 0;
  for (const LayerInfo& layer : layers) n_used = std::max(n_used, layer.n_expert_used);
  const std::size_t row = static_cast<std::size_t>(n_embd) * sizeof(float);
  // An expert takes its number and its routing weight, in order of the rows and in order of the experts.
  constexpr std::size_t kPerExpert = 2 * (sizeof(float) + sizeof(std::int32_t));
  return n_used == 0 ? row : 2 * row + static_cast<std::size_t>(n_used) * kPerExpert;
}

std::vector<int> ModelInfo::dimension(int LayerInfo::*field) const {
  std::vector<int> values;
  for (const LayerInfo& layer : layers) values.push_back(layer.*field);
  if (std::equal(values.begin() + 1, values.end(), values.begin())) values.resize(1);
  return values;
}

std::shared_ptr<const Model> Model::load(const std::string& path, const ModelOptions& options) {
  return std::shared_ptr<const Model>(new Model(std::make_unique<Impl>(path, options)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelInfo& Model::info() const { return impl_->info; }

std::vector<Token> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return impl_->tokenizer.tokenize(text, add_special, parse_special);
}
std::string Model::token_text(Token token, bool special) const { return impl_->tokenizer.token_text(token, special); }
std::string Model::detokenize(std::span<const Token> tokens) const { return impl_->tokenizer.detokenize(tokens); }
bool Model::is_end_of_generation(Token token) const { return impl_->tokenizer.is_end_of_generation(token); }
std::optional<Token> Model::special_token(SpecialToken which) const { return impl_->tokenizer.special_token(which); }
std::vector<std::pair<std::string, std::string>> Model::metadata() const { return impl_->file.texts(); }
bool Model::has_chat_template() const { return impl_->chat_template.exists(); }
std::string Model::apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant) const {
  return impl_->chat_template.render(messages, add_assistant);
}
ChatPrompt Model::apply_chat_template(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  return impl_->chat_template.apply(messages, options);
}

}  // namespace winnow
