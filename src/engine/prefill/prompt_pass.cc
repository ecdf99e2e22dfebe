#include "engine/prefill/prompt_pass.h"

#include <ggml.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>

#include "model/stored_product.h"
#include "winnow/error.h"

namespace winnow {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> id{0};
  return ++id;
}

std::size_t count(std::span<const std::vector<Token>> parts) {
  std::size_t n = 0;
  for (const std::vector<Token>& part : parts) n += part.size();
  return n;
}

}  // namespace

PromptPass::PromptPass(Engine::Impl& engine, EntrySink& sink, std::span<const Token> tokens,
                       std::int32_t first_position, std::vector<QueryEvidence*> recorders,
                       std::span<const std::vector<Token>> followers)
    : engine_(engine),
      id_(next_id()),
      n_tokens_(static_cast<std::int32_t>(tokens.size())),
      first_position_(first_position),
      n_rows_(static_cast<std::int32_t>(tokens.size() + count(followers))),
      recorders_(std::move(recorders)),
      hidden_(static_cast<std::size_t>(n_rows_) * static_cast<std::size_t>(engine.model->impl().spec.n_embd) *
              sizeof(float)),
      attention_(engine.model->impl(), sink, engine.compute) {
  int q_size = 0, k_size = 0;
  for (const LayerSpec& layer : engine.model->impl().spec.layers) {
    q_size = std::max(q_size, layer.q_size());
    k_size = std::max(k_size, layer.k_size());
  }
  follower_q_.resize(count(followers) * static_cast<std::size_t>(q_size));
  follower_k_.resize(count(followers) * static_cast<std::size_t>(k_size));
  add_part({.first_row = 0, .n_rows = n_tokens_, .first_position = first_position, .is_follower = false}, tokens);
  std::int32_t first_row = n_tokens_;
  for (const std::vector<Token>& follower : followers) {
    const auto n = static_cast<std::int32_t>(follower.size());
    add_part({.first_row = first_row, .n_rows = n, .first_position = first_position + n_tokens_, .is_follower = true},
             follower);
    first_row += n;
  }
}

void PromptPass::add_part(const Part& part, std::span<const Token> tokens) {
  engine_.embed(tokens, row(part.first_row));
  for (std::int32_t first = 0; first < part.n_rows; first += engine_.options.n_batch) {
    batches_.push_back({.part = static_cast<int>(parts_.size()),
                        .first_row = first,
                        .n_rows = std::min(engine_.options.n_batch, part.n_rows - first)});
  }
  parts_.push_back(part);
}

float* PromptPass::row(std::int32_t r) {
  return reinterpret_cast<float*>(hidden_.data()) + std::int64_t{r} * engine_.model->impl().spec.n_embd;
}

std::int64_t PromptPass::work_total() const { return std::int64_t{n_rows_} * engine_.model->impl().spec.n_layer(); }

bool PromptPass::step(const std::function<void(int)>& on_layer) {
  const std::vector<LayerWeights>& layers = engine_.model->impl().weights.layers;
  const LayerWeights& weights = layers[layer_];
  const auto start = std::chrono::steady_clock::now();
  run_batch(weights, batches_[batch_]);
  if (parts_[static_cast<std::size_t>(batches_[batch_].part)].is_follower) {
    follower_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  work_done_ += batches_[batch_].n_rows;
  if (++batch_ < batches_.size()) return true;
  if (on_layer) on_layer(weights.layer);
  batch_ = 0;
  return ++layer_ < layers.size();
}

bool PromptPass::is_packed(const ggml_tensor* weight) const {
  switch (engine_.options.prefill_weights) {
    case PrefillWeights::kAuto:
      if (!has_int8_product(weight)) return n_rows_ >= kMinConvertedTokens;  // below, ggml's products are faster
      return multiplies_bf16() && n_rows_ >= kMinConvertedInt8Tokens;
    case PrefillWeights::kAsIs:
      return false;
    case PrefillWeights::kInt8:
      return !has_int8_product(weight);
    case PrefillWeights::kBf16:
    case PrefillWeights::kF32:
      return true;
  }
  return false;
}

// Another pass may have had its turn since this one's last batch.
bool PromptPass::pack_layer(const LayerWeights& weights) {
  std::vector<ggml_tensor*> matrices = {weights.wq,   weights.wk, weights.wv,  weights.wo,
                                        weights.gate, weights.up, weights.down};
  std::erase_if(matrices, [this](const ggml_tensor* weight) { return !is_packed(weight); });
  if (matrices.empty()) return false;
  if (engine_.packed_by == id_ && engine_.packed_layer == weights.layer) return true;
  engine_.packed_by = 0;
  engine_.packed.pack(matrices, std::min(n_rows_, engine_.options.n_batch), engine_.compute);
  engine_.packed_by = id_;
  engine_.packed_layer = weights.layer;
  return true;
}

void PromptPass::run_batch(const LayerWeights& weights, const Batch& batch) {
  const Model::Impl& model = engine_.model->impl();
  const LayerSpec& spec = model.spec.layers[static_cast<std::size_t>(weights.layer)];
  const Part& part = parts_[static_cast<std::size_t>(batch.part)];
  const std::int32_t position = part.first_position + batch.first_row;
  const std::int32_t first_row = part.first_row + batch.first_row;
  if (part.is_follower) {
    const auto r = static_cast<std::size_t>(first_row - n_tokens_);
    attention_.begin(weights.layer, position, batch.n_rows, {},
                     {.q = follower_q_.data() + r * static_cast<std::size_t>(spec.q_size()),
                      .k = follower_k_.data() + r * static_cast<std::size_t>(spec.k_size())});
  } else {
    attention_.begin(weights.layer, position, batch.n_rows, recorders_, {});
  }
  const bool packed = pack_layer(weights);
  if (packed) engine_.packed.prepare(batch.n_rows);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(batch.n_rows));
  std::iota(positions.begin(), positions.end(), position);

  Graph& graph = engine_.layer_graph;
  graph.reset();
  ggml_tensor* x = graph.external(GGML_TYPE_F32, model.spec.n_embd, batch.n_rows, row(first_row));
  ggml_tensor* position_tensor = graph.external(GGML_TYPE_I32, batch.n_rows, 1, positions.data());
  GraphBuilder builder(graph.context(), attention_, position_tensor, packed ? &engine_.packed : nullptr,
                       ProductRows::kMany, engine_.compute);
  graph.expand(model.architecture.build_layer(builder, spec, weights, x));
  graph.allocate();
  engine_.note_graph_bytes();
  engine_.compute.run(graph);
}

std::vector<ReconstructionPass> PromptPass::reconstruction() const {
  const LayerSpec& spec = engine_.model->impl().spec.layers[layer_];
  std::vector<ReconstructionPass> passes;
  for (const Part& part : parts_) {
    if (!part.is_follower) continue;
    const std::int64_t first = part.first_row - n_tokens_;
    passes.push_back({.n_rows = part.n_rows,
                      .q = follower_q_.data() + first * spec.q_size(),
                      .k = follower_k_.data() + first * spec.k_size()});
  }
  return passes;
}

std::vector<float> PromptPass::read_logits(const LogitsCallback& on_logits) {
  const auto n_vocab = static_cast<std::size_t>(engine_.model->impl().spec.n_vocab);
  std::vector<float> last(n_vocab);
  if (!on_logits) {
    engine_.output_logits(row(n_tokens_ - 1), 1, last.data());
    return last;
  }
  constexpr std::int32_t kRows = 32;  // the logits of a large vocabulary take megabytes a row
  std::vector<float> rows(kRows * n_vocab);
  for (std::int32_t first = 0; first < n_tokens_; first += kRows) {
    const std::int32_t n_rows = std::min(kRows, n_tokens_ - first);
    engine_.output_logits(row(first), n_rows, rows.data());
    for (std::int32_t r = 0; r < n_rows; ++r) {
      const auto logits = std::span<const float>(rows).subspan(static_cast<std::size_t>(r) * n_vocab, n_vocab);
      on_logits(first_position_ + first + r, logits);
      if (first + r + 1 == n_tokens_) std::copy(logits.begin(), logits.end(), last.begin());
    }
  }
  return last;
}

}  // namespace winnow
