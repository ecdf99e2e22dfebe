#include "engine/layer_views.h"

#include <ggml.h>

#include <algorithm>

#include "engine/rows_attention.h"

namespace winnow {

LayerView layer_view(const Engine::Impl& engine, const CacheShape& shape, int layer,
                     std::span<const kernels::HeadEntries> heads, std::int32_t n_tokens) {
  const Hparams& hparams = engine.model->impl().hparams;
  return {
      .layer = layer,
      .n_head = hparams.n_head,
      .n_kv_head = hparams.n_kv_head,
      .shape = attention_shape(hparams, shape),
      .n_tokens = n_tokens,
      .heads = heads,
      .rotation = {.interleaved = engine.rotation.interleaved,
                   .n_dims = engine.rotation.n_dims,
                   .frequency = engine.rotation.frequency.data(),
                   .magnitude = engine.rotation.magnitude},
      .n_embd = hparams.n_embd,
  };
}

std::vector<float> output_projection(Engine::Impl& engine, int layer) {
  const Hparams& h = engine.model->impl().hparams;
  const ggml_tensor* wo = engine.model->impl().weights.layers[static_cast<std::size_t>(layer)].wo;
  const auto n_in = static_cast<std::size_t>(h.n_head * h.head_dim);
  const auto n_embd = static_cast<std::size_t>(h.n_embd);
  std::vector<float> slices(n_in * n_embd);
  constexpr int kRows = 64;
  engine.compute.parallel_for((h.n_embd + kRows - 1) / kRows, [&](int block) {
    std::vector<float> row(n_in);
    for (int e = block * kRows; e < std::min(h.n_embd, (block + 1) * kRows); ++e) {
      dequantize_row(wo, e, row.data());
      for (std::size_t i = 0; i < n_in; ++i) slices[i * n_embd + static_cast<std::size_t>(e)] = row[i];
    }
  });
  return slices;
}

LayerView stored_layer_view(Session::Impl& session, int layer, std::vector<kernels::HeadEntries>& heads,
                            std::vector<float>& w_o, int max_window_rows) {
  heads.clear();
  for (int h = 0; h < session.cache.shape().n_kv_head; ++h) heads.push_back(session.cache.entries(layer, h));
  LayerView view = layer_view(session.engine_impl(), session.cache.shape(), layer, heads, session.n_tokens());
  session.evidence.fill(view, max_window_rows);
  if (session.evidence.needs().output_projection) {
    w_o = output_projection(session.engine_impl(), layer);
    view.w_o = w_o.data();
  }
  return view;
}

void keep_entries(RaggedCache& cache, std::span<const LayerCut> cuts, const ParallelFor& parallel_for) {
  const int n_kv_head = cache.shape().n_kv_head;
  parallel_for(static_cast<int>(cuts.size()) * n_kv_head, [&](int item) {
    const LayerCut& cut = cuts[static_cast<std::size_t>(item / n_kv_head)];
    const int h = item % n_kv_head;
    cache.keep(cut.layer, h, cut.kept[static_cast<std::size_t>(h)]);
  });
}

}  // namespace winnow
