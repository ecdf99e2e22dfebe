#include "engine/prompt_pass.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "winnow/error.h"

namespace winnow {
namespace {

// From how many rows on the conversion of a layer's weights pays; below, ggml's products on the file's types are
// faster.
constexpr std::int32_t kMinPackedRows = 32;

}  // namespace

PromptPass::PromptPass(Session::Impl& session, std::span<const Token> tokens, StagingBuffer* staging)
    : session_(session),
      engine_(session.engine_impl()),
      tokens_(tokens),
      staging_(staging),
      first_position_(session.n_tokens()),
      hidden_(tokens.size() * static_cast<std::size_t>(session.model().hparams.n_embd) * sizeof(float)),
      attention_(session.model().hparams, session.cache.shape(), engine_.compute) {}

float* PromptPass::row(std::int32_t r) {
  return reinterpret_cast<float*>(hidden_.data()) + std::int64_t{r} * session_.model().hparams.n_embd;
}

void PromptPass::run(const ProgressCallback& on_progress, const std::function<void(int)>& on_layer) {
  const Model::Impl& model = session_.model();
  const auto n = static_cast<std::int32_t>(tokens_.size());
  const std::int32_t n_batch = engine_.options.n_batch;
  const bool packed = n >= kMinPackedRows;
  const std::int64_t work = std::int64_t{n} * model.hparams.n_layer;
  std::int64_t done = 0;

  engine_.embed(tokens_, row(0));
  for (const LayerWeights& weights : model.weights.layers) {
    if (packed) {
      const std::array matrices = {weights.wq,   weights.wk, weights.wv,  weights.wo,
                                   weights.gate, weights.up, weights.down};
      engine_.packed.pack(matrices, std::min(n, n_batch), engine_.compute);
    }
    for (std::int32_t first = 0; first < n; first += n_batch) {
      const std::int32_t n_rows = std::min(n_batch, n - first);
      run_chunk(weights, first, n_rows, packed);
      done += n_rows;
      if (on_progress && !on_progress(done, work)) throw Error(ErrorCode::kCancelled, "the prefill was stopped");
    }
    if (on_layer) on_layer(weights.layer);
  }
}

void PromptPass::run_chunk(const LayerWeights& weights, std::int32_t first_row, std::int32_t n_rows, bool packed) {
  const Model::Impl& model = session_.model();
  const std::int32_t position = first_position_ + first_row;
  const auto n = static_cast<std::int32_t>(tokens_.size());
  if (staging_ != nullptr) {
    attention_.begin_staged(*staging_, session_.evidence, first_row, n_rows, position);
  } else {
    attention_.begin_cached(session_.cache, session_.evidence, weights.layer, n_rows, n - first_row - n_rows, position);
  }
  if (packed) engine_.packed.prepare(n_rows);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n_rows));
  std::iota(positions.begin(), positions.end(), position);

  Graph& graph = engine_.layer_graph;
  graph.reset();
  ggml_tensor* x = graph.external(GGML_TYPE_F32, model.hparams.n_embd, n_rows, row(first_row));
  ggml_tensor* position_tensor = graph.external(GGML_TYPE_I32, n_rows, 1, positions.data());
  GraphBuilder builder(graph.context(), model.hparams, attention_, position_tensor, packed ? &engine_.packed : nullptr);
  graph.expand(model.architecture.build_layer(builder, weights, x));
  graph.allocate();
  engine_.compute.run(graph);
}

void PromptPass::read_logits(const LogitsCallback& on_logits) {
  const auto n = static_cast<std::int32_t>(tokens_.size());
  const auto n_vocab = static_cast<std::size_t>(session_.model().hparams.n_vocab);
  std::vector<float> last(n_vocab);
  if (!on_logits) {
    engine_.output_logits(row(n - 1), 1, last.data());
  } else {
    constexpr std::int32_t kRows = 32;  // the logits of a large vocabulary take megabytes a row
    std::vector<float> rows(kRows * n_vocab);
    for (std::int32_t first = 0; first < n; first += kRows) {
      const std::int32_t n_rows = std::min(kRows, n - first);
      engine_.output_logits(row(first), n_rows, rows.data());
      for (std::int32_t r = 0; r < n_rows; ++r) {
        on_logits(first_position_ + first + r, std::span(rows).subspan(static_cast<std::size_t>(r) * n_vocab, n_vocab));
      }
      if (first + n_rows == n)
        std::copy_n(rows.end() - static_cast<std::ptrdiff_t>((kRows - n_rows + 1) * n_vocab), n_vocab, last.begin());
    }
  }
  session_.logits = std::move(last);
}

}  // namespace winnow
