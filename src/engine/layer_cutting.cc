#include "engine/layer_cutting.h"

#include <ggml.h>

#include <algorithm>

#include "engine/rows_attention.h"

namespace winnow {
namespace {

// The slices W_O[h] as [n_head][head_dim][n_embd], from the file's [n_embd rows][n_head * head_dim].
std::vector<float> output_projection(Session::Impl& session, int layer) {
  const Hparams& h = session.model().hparams;
  const ggml_tensor* wo = session.model().weights.layers[static_cast<std::size_t>(layer)].wo;
  const auto n_in = static_cast<std::size_t>(h.n_head * h.head_dim);
  const auto n_embd = static_cast<std::size_t>(h.n_embd);
  std::vector<float> slices(n_in * n_embd);
  constexpr int kRows = 64;
  session.engine_impl().compute.parallel_for((h.n_embd + kRows - 1) / kRows, [&](int block) {
    std::vector<float> row(n_in);
    for (int e = block * kRows; e < std::min(h.n_embd, (block + 1) * kRows); ++e) {
      dequantize_row(wo, e, row.data());
      for (std::size_t i = 0; i < n_in; ++i) slices[i * n_embd + static_cast<std::size_t>(e)] = row[i];
    }
  });
  return slices;
}

}  // namespace

std::vector<LayerCut> show_layer(Session::Impl& session, Cut& cut, int layer,
                                 std::span<const kernels::HeadEntries> heads, std::int32_t n_tokens,
                                 int max_window_rows) {
  const Hparams& hparams = session.model().hparams;
  const Rotation& rotation = session.engine_impl().rotation;
  LayerView view{
      .layer = layer,
      .n_head = hparams.n_head,
      .n_kv_head = hparams.n_kv_head,
      .shape = attention_shape(hparams, session.cache.shape()),
      .n_tokens = n_tokens,
      .heads = heads,
      .rotation = {.interleaved = rotation.interleaved,
                   .n_dims = rotation.n_dims,
                   .frequency = rotation.frequency.data(),
                   .magnitude = rotation.magnitude},
      .n_embd = hparams.n_embd,
  };
  session.evidence.fill(view, max_window_rows);
  std::vector<float> w_o;
  if (session.evidence.needs().output_projection) {
    w_o = output_projection(session, layer);
    view.w_o = w_o.data();
  }
  return cut.add_layer(view, session.engine_impl().parallel_for());
}

}  // namespace winnow
