#include "engine/evidence/layer_views.h"

#include <ggml.h>

#include <algorithm>

#include "engine/attention_shape.h"

namespace winnow {

LayerView layer_view(const Engine::Impl& engine, const CacheShape& shape, int layer,
                     std::span<const kernels::HeadEntries> heads, std::int32_t n_tokens) {
  const Model::Impl& model = engine.model->impl();
  const LayerSpec& spec = model.spec.layers[static_cast<std::size_t>(layer)];
  const Rotation& rotation = engine.rotations[static_cast<std::size_t>(layer)];
  return {
      .layer = layer,
      .n_head = spec.n_head,
      .n_kv_head = spec.n_kv_head,
      .shape = attention_shape(model, layer, shape.key_type, shape.value_type),
      .n_tokens = n_tokens,
      .heads = heads,
      .rotation = {.interleaved = rotation.interleaved,
                   .n_dims = rotation.n_dims,
                   .frequency = rotation.frequency.data(),
                   .magnitude = rotation.magnitude},
      .n_embd = model.spec.n_embd,
  };
}

std::vector<float> output_projection(Engine::Impl& engine, int layer) {
  const ModelSpec& spec = engine.model->impl().spec;
  const ggml_tensor* wo = engine.model->impl().weights.layers[static_cast<std::size_t>(layer)].wo;
  const auto n_in = static_cast<std::size_t>(spec.layers[static_cast<std::size_t>(layer)].output_size());
  const auto n_embd = static_cast<std::size_t>(spec.n_embd);
  std::vector<float> slices(n_in * n_embd);
  constexpr int kRows = 64;
  engine.compute.parallel_for((spec.n_embd + kRows - 1) / kRows, [&](int block) {
    std::vector<float> row(n_in);
    for (int e = block * kRows; e < std::min(spec.n_embd, (block + 1) * kRows); ++e) {
      dequantize_row(wo, e, row.data());
      for (std::size_t i = 0; i < n_in; ++i) slices[i * n_embd + static_cast<std::size_t>(e)] = row[i];
    }
  });
  return slices;
}

LayerView stored_layer_view(Session::Impl& session, int layer, std::vector<kernels::HeadEntries>& heads,
                            std::vector<float>& w_o, int max_window_rows) {
  heads.clear();
  for (int h = 0; h < session.cache.shape().layer(layer).n_kv_head; ++h)
    heads.push_back(session.cache.entries(layer, h));
  LayerView view = layer_view(session.engine_impl(), session.cache.shape(), layer, heads, session.n_tokens());
  session.evidence.fill(view, max_window_rows);
  if (session.evidence.needs().output_projection) {
    w_o = output_projection(session.engine_impl(), layer);
    view.w_o = w_o.data();
  }
  return view;
}

void keep_entries(RaggedCache& cache, std::span<const LayerCut> cuts, const ParallelFor& parallel_for) {
  struct Item {
    int layer, head;
    const std::vector<std::int32_t>* kept;
  };
  std::vector<Item> items;
  for (const LayerCut& cut : cuts) {
    for (std::size_t h = 0; h < cut.kept.size(); ++h) {
      items.push_back({cut.layer, static_cast<int>(h), &cut.kept[h]});
    }
  }
  parallel_for(static_cast<int>(items.size()), [&](int i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    cache.keep(item.layer, item.head, *item.kept);
  });
}

}  // namespace winnow
