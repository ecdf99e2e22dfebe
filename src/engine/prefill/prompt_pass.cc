#include "engine/prefill/prompt_pass.h"

#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/engine_impl.h"

namespace winnow {
namespace {

// Batches of a sweep where weights are converted for each, or experts read for the rows of each.
constexpr std::size_t kSweepBatches = 4;

std::size_t count(std::span<const std::vector<Token>> parts) {
  std::size_t n = 0;
  for (const std::vector<Token>& part : parts) n += part.size();
  return n;
}

// In sums side by side: one after the other would take as long as a hundredth of the pass.
float l2_norm(std::span<const float> x) {
  constexpr std::size_t kSums = 8;
  double squares[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) squares[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  for (; i < x.size(); ++i) squares[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return static_cast<float>(std::sqrt(std::accumulate(squares, squares + kSums, 0.0)));
}

}  // namespace

PromptPass::PromptPass(Engine::Impl& engine, LayerRange layers, EntrySink& sink, RecurrentState& state,
                       std::span<const Token> tokens, std::int32_t first_position,
                       std::vector<QueryEvidence*> recorders, std::span<const std::vector<Token>> followers)
    : engine_(engine),
      layers_(layers),
      n_tokens_(static_cast<std::int32_t>(tokens.size())),
      first_position_(first_position),
      n_rows_(static_cast<std::int32_t>(tokens.size() + count(followers))),
      n_converted_(n_rows_),
      recorders_(std::move(recorders)),
      state_(state),
      hidden_(static_cast<std::size_t>(n_rows_) * static_cast<std::size_t>(engine.model->impl().spec.n_embd) *
              sizeof(float)),
      attention_(engine.model->impl(), sink, engine.compute),
      layer_(layers.first) {
  int q_size = 0, n_head = 0;
  for (const LayerSpec& layer : engine.model->impl().spec.layers) {
    q_size = std::max(q_size, layer.q_size());
    n_head = std::max(n_head, layer.n_head);
  }
  follower_q_.resize(count(followers) * static_cast<std::size_t>(q_size));
  follower_sums_.resize(count(followers) * static_cast<std::size_t>(n_head));
  follower_norms_.resize(count(followers));
  if (ExpertPass::is_needed(engine.model->impl().spec)) experts_.emplace(engine, row(0), n_rows_);
  add_part({.first_row = 0, .n_rows = n_tokens_, .first_position = first_position, .is_follower = false}, tokens);
  n_prompt_batches_ = batches_.size();
  std::int32_t first_row = n_tokens_;
  for (const std::vector<Token>& follower : followers) {
    const auto n = static_cast<std::int32_t>(follower.size());
    add_part({.first_row = first_row, .n_rows = n, .first_position = first_position + n_tokens_, .is_follower = true},
             follower);
    first_row += n;
  }
  sweeps_ = {{.first = 0, .last = batches_.size()}};
}

void PromptPass::take_together(int n_layers) {
  if (n_layers == 1 && layers_.size() > 1) return;
  // Of all layers, so that ranks do the same.
  const std::vector<LayerWeights>& weights = engine_.model->impl().weights.layers;
  const bool is_costly = experts_ || std::any_of(weights.begin(), weights.end(), [&](const LayerWeights& layer) {
                           return engine_.converted.converts(layer, n_converted_);
                         });
  const std::size_t n = is_costly ? kSweepBatches : 1;
  n_together_ = n_layers;
  sweeps_.clear();
  for (std::size_t first = 0; first < n_prompt_batches_; first += n) {
    sweeps_.push_back({.first = first, .last = std::min(first + n, n_prompt_batches_)});
  }
  if (n_prompt_batches_ < batches_.size()) sweeps_.push_back({.first = n_prompt_batches_, .last = batches_.size()});
}

void PromptPass::add_part(const Part& part, std::span<const Token> tokens) {
  if (layers_.first == 0) engine_.embed(tokens, row(part.first_row));
  if (engine_.model->impl().spec.brings_tokens()) tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
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

std::span<float> PromptPass::hidden() { return {row(0), hidden_.bytes() / sizeof(float)}; }

std::int64_t PromptPass::work_total() const {
  std::int64_t n = 0;
  for (int l = layers_.first; l < layers_.last; ++l) n += n_batches(l) < batches_.size() ? n_tokens_ : n_rows_;
  return n;
}

std::size_t PromptPass::n_batches(int layer) const {
  const LayerSpec& spec = engine_.model->impl().spec.layers[static_cast<std::size_t>(layer)];
  return spec.kind == LayerKind::kSharedAttention ? n_prompt_batches_ : batches_.size();
}

bool PromptPass::has_experts(int layer) const {
  return engine_.model->impl().spec.layers[static_cast<std::size_t>(layer)].feed_forward.n_expert > 0;
}

std::optional<int> PromptPass::step() {
  const auto start = std::chrono::steady_clock::now();
  double follower_share = 0;
  const Stage stage = stage_;
  if (stage == Stage::kExperts) {
    const auto [first, last] = rows_of(first_batch(), last_batch());
    follower_share = static_cast<double>(std::max(0, last - n_tokens_)) / (last - first);
    if (!experts_->step()) stage_ = Stage::kAfterExperts;
  } else {
    const Batch& batch = batches_[batch_];
    follower_share = parts_[static_cast<std::size_t>(batch.part)].is_follower ? 1 : 0;
    run_batch(layer_, batch);
    if (stage == Stage::kLayer) work_done_ += batch.n_rows;
    if (++batch_ == last_batch()) {
      batch_ = first_batch();
      stage_ = stage == Stage::kLayer && has_experts(layer_) ? Stage::kExperts : Stage::kLayer;
      if (stage_ == Stage::kExperts) {
        const auto [first, last] = rows_of(first_batch(), last_batch());
        experts_->begin(layer_, first, last - first);
      }
    }
  }
  follower_s_ += follower_share * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (stage_ != Stage::kLayer || batch_ > first_batch()) return std::nullopt;
  const int layer = layer_;
  const bool is_last_sweep = sweep_ + 1 == sweeps_.size();
  do {
    go_on();
  } while (!is_through() && first_batch() == last_batch());
  return is_last_sweep ? std::optional(layer) : std::nullopt;
}

void PromptPass::go_on() {
  const int first = layer_ - (layer_ - layers_.first) % n_together_;  // of those that are taken together
  const int last = std::min(first + n_together_, layers_.last);
  if (++layer_ == last && sweep_ + 1 < sweeps_.size()) {
    ++sweep_;
    layer_ = first;
  } else if (layer_ == last && !is_through()) {
    sweep_ = 0;
  }
  if (!is_through()) batch_ = first_batch();
}

PromptPass::Rows PromptPass::rows_of(std::size_t first_batch, std::size_t last_batch) const {
  const auto row = [&](std::size_t b) {
    return parts_[static_cast<std::size_t>(batches_[b].part)].first_row + batches_[b].first_row;
  };
  return {.first = row(first_batch), .last = row(last_batch - 1) + batches_[last_batch - 1].n_rows};
}

// What follows the prompt goes on from the prompt's state in memory of its own.
RecurrentState::Update PromptPass::state_of(int layer, const Batch& batch) {
  if (!parts_[static_cast<std::size_t>(batch.part)].is_follower) return state_.update(layer);
  const std::span<const float> latest = state_.latest(layer);
  follower_state_.resize(latest.size());
  return {.from = batch.first_row == 0 ? latest.data() : follower_state_.data(), .to = follower_state_.data()};
}

void PromptPass::begin_attention(int layer, const Batch& batch) {
  const LayerSpec& spec = engine_.model->impl().spec.layers[static_cast<std::size_t>(layer)];
  const Part& part = parts_[static_cast<std::size_t>(batch.part)];
  const std::int32_t position = part.first_position + batch.first_row;
  if (spec.kind == LayerKind::kRecurrent) {
    attention_.begin(layer, batch.n_rows, state_of(layer, batch));
  } else if (part.is_follower) {
    const auto r = static_cast<std::size_t>(part.first_row + batch.first_row - n_tokens_);
    for (std::int32_t i = 0; i < batch.n_rows; ++i) {
      follower_norms_[r + static_cast<std::size_t>(i)] = l2_norm(
          {row(part.first_row + batch.first_row + i), static_cast<std::size_t>(engine_.model->impl().spec.n_embd)});
    }
    attention_.begin(layer, position, batch.n_rows, {},
                     {.q = follower_q_.data() + r * static_cast<std::size_t>(spec.q_size()),
                      .log_sum_exp = follower_sums_.data() + r * static_cast<std::size_t>(spec.n_head)});
  } else {
    attention_.begin(layer, position, batch.n_rows, recorders_, {});
  }
}

void PromptPass::run_batch(int layer, const Batch& batch) {
  const Model::Impl& model = engine_.model->impl();
  const LayerSpec& spec = model.spec.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& weights = model.weights.layers[static_cast<std::size_t>(layer)];
  const Part& part = parts_[static_cast<std::size_t>(batch.part)];
  const std::int32_t first_row = part.first_row + batch.first_row;
  const std::span passing(row(first_row), static_cast<std::size_t>(batch.n_rows * model.spec.n_embd));
  const bool is_first_stage = stage_ == Stage::kLayer;
  const bool is_last_stage = stage_ == (has_experts(layer) ? Stage::kAfterExperts : Stage::kLayer);
  if (layer == layers_.first && is_first_stage) engine_.pipeline.receive_rows(passing);
  if (is_first_stage) begin_attention(layer, batch);
  PackedLayer* converted =
      engine_.converted.use(weights, n_converted_, std::min(n_rows_, engine_.options.n_batch), engine_.compute);
  if (converted != nullptr) converted->prepare(batch.n_rows);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(batch.n_rows));
  std::iota(positions.begin(), positions.end(), part.first_position + batch.first_row);

  Graph& graph = engine_.layer_graph;
  graph.reset();
  const auto rows_of = [&](float* rows) {
    return graph.external(GGML_TYPE_F32, model.spec.n_embd, batch.n_rows, rows);
  };
  ggml_tensor* x = rows_of(row(first_row));
  ggml_tensor* position_tensor = graph.external(GGML_TYPE_I32, batch.n_rows, 1, positions.data());
  GraphBuilder builder(graph.context(), attention_, position_tensor, converted, engine_.compute);
  if (!tokens_.empty()) {
    builder.bring_tokens(model.spec, model.weights,
                         graph.external(GGML_TYPE_I32, batch.n_rows, 1, tokens_.data() + first_row));
  }
  if (!has_experts(layer)) {
    graph.expand(builder.layer(spec, weights, x));
  } else if (stage_ == Stage::kLayer) {
    experts_->note(graph, builder.until_experts(spec, weights, x), first_row);
  } else {
    graph.expand(builder.after_experts(spec, weights, x, rows_of(experts_->sums(first_row))));
  }
  graph.allocate();
  engine_.note_graph_bytes();
  engine_.compute.run(graph);
  if (layer + 1 == layers_.last && is_last_stage) engine_.pipeline.send_rows(passing);
}

std::vector<ReconstructionPass> PromptPass::reconstruction(int layer) const {
  const LayerSpec& spec = engine_.model->impl().spec.layers[static_cast<std::size_t>(layer)];
  std::vector<ReconstructionPass> passes;
  for (const Part& part : parts_) {
    if (!part.is_follower) continue;
    const std::int64_t first = part.first_row - n_tokens_;
    passes.push_back({.n_rows = part.n_rows,
                      .q = follower_q_.data() + first * spec.q_size(),
                      .log_sum_exp = follower_sums_.data() + first * spec.n_head,
                      .input_norm = follower_norms_.data() + first});
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
  read_rows(&Engine::Impl::output_logits, n_vocab, [&](std::int32_t position, std::span<const float> logits) {
    on_logits(position, logits);
    if (position == first_position_ + n_tokens_ - 1) std::copy(logits.begin(), logits.end(), last.begin());
  });
  return last;
}

void PromptPass::read_hidden(const HiddenCallback& on_hidden) {
  read_rows(&Engine::Impl::output_hidden, static_cast<std::size_t>(engine_.model->impl().spec.n_embd), on_hidden);
}

void PromptPass::read_rows(Output output, std::size_t width,
                           const std::function<void(std::int32_t position, std::span<const float>)>& on_row) {
  constexpr std::int32_t kRows = 32;  // the logits of a large vocabulary take megabytes a row
  std::vector<float> rows(kRows * width);
  for (std::int32_t first = 0; first < n_tokens_; first += kRows) {
    const std::int32_t n_rows = std::min(kRows, n_tokens_ - first);
    (engine_.*output)(row(first), n_rows, rows.data());
    for (std::int32_t r = 0; r < n_rows; ++r) {
      on_row(first_position_ + first + r,
             std::span<const float>(rows).subspan(static_cast<std::size_t>(r) * width, width));
    }
  }
}

}  // namespace winnow
