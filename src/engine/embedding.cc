#include "winnow/embedding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "winnow/error.h"

namespace winnow {

Pooling parse_pooling(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "cls") return Pooling::kCls;
  if (name == "last") return Pooling::kLast;
  throw Error(ErrorCode::kInvalidArgument,
              "embeddings are pooled by mean, cls or last, not '" + std::string(name.substr(0, 32)) + "'");
}

Pooling default_pooling(const Model& model) { return model.info().pooling.value_or(Pooling::kMean); }

void EmbeddingPool::add(std::int32_t position, std::span<const float> row) {
  sum_.resize(row.size());
  if (pooling_ == Pooling::kCls && position != 0) return;
  if (pooling_ == Pooling::kLast && position != n_tokens_ - 1) return;
  for (std::size_t i = 0; i < row.size(); ++i) sum_[i] += static_cast<double>(row[i]);
}

std::vector<float> EmbeddingPool::pooled() const {
  const double n = pooling_ == Pooling::kMean ? n_tokens_ : 1;
  std::vector<float> embedding(sum_.size());
  std::transform(sum_.begin(), sum_.end(), embedding.begin(), [n](double sum) { return static_cast<float>(sum / n); });
  return embedding;
}

void normalise(std::span<float> embedding) {
  const double squares = std::accumulate(embedding.begin(), embedding.end(), 0.0, [](double sum, float x) {
    return sum + static_cast<double>(x) * static_cast<double>(x);
  });
  if (squares <= 0) return;
  const double length = std::sqrt(squares);
  for (float& x : embedding) x = static_cast<float>(static_cast<double>(x) / length);
}

SessionOptions embedding_session(const Model& model, std::int32_t n_ctx) {
  SessionOptions options;
  options.n_ctx = n_ctx;
  if (model.info().n_cut_heads() > 0) {
    options.eviction = EvictionOptions::parse("streaming-llm:sinks=0");
    options.budget = Budget{.unit = Budget::Unit::kTokens, .amount = 1};
  }
  return options;
}

std::vector<float> embed(Engine& engine, std::span<const Token> tokens, const EmbeddingOptions& options) {
  Session session = engine.open(embedding_session(*engine.model(), options.n_ctx));
  EmbeddingPool pool(options.pooling.value_or(default_pooling(*engine.model())),
                     static_cast<std::int32_t>(tokens.size()));
  PrefillOptions callbacks{.on_progress = options.on_progress, .on_logits = {}, .on_hidden = {}};
  callbacks.on_hidden = [&](std::int32_t position, std::span<const float> row) { pool.add(position, row); };
  session.prefill(tokens, callbacks);
  std::vector<float> embedding = pool.pooled();
  if (options.is_normalised) normalise(embedding);
  return embedding;
}

}  // namespace winnow
