#include "engine/evidence/layer_views.h"

#include <ggml.h>

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "engine/attention_shape.h"

namespace winnow {
namespace {

const float* key_scales_of(const Engine::Impl& engine, int layer) {
  const ggml_tensor* scales = engine.model->impl().weights.layer(layer).k_scales;
  return scales != nullptr ? static_cast<const float*>(scales->data) : nullptr;
}

}  // namespace

LayerViews::LayerViews(Engine::Impl& engine, const EntrySink& sink, int layer, std::int32_t n_tokens,
                       Reconstructions reconstructions, const PassRows* rows)
    : engine_(engine),
      shape_(sink.shape()),
      layer_(layer),
      n_tokens_(n_tokens),
      reconstructions_(std::move(reconstructions)) {
  for (int h = 0; h < shape_.layer(layer).n_kv_head; ++h) heads_.push_back(sink.head(h).entries);
  measure_on_device([&](int h) { return sink.head_rows(h); }, rows);
}

LayerViews::LayerViews(Engine::Impl& engine, const RaggedCache& cache, const EntryScores& scores, int layer,
                       std::int32_t n_tokens)
    : engine_(engine), shape_(cache.shape()), layer_(layer), n_tokens_(n_tokens), earlier_scores_(scores.layer(layer)) {
  const int n_heads = shape_.layer(layer).n_kv_head;
  runs_.resize(static_cast<std::size_t>(n_heads));
  for (int h = 0; h < n_heads; ++h) {
    heads_.push_back(cache.entries_by_position(layer, h, runs_[static_cast<std::size_t>(h)]));
  }
  measure_on_device([&](int h) { return cache.head_rows(layer, h); }, nullptr);
}

void LayerViews::measure_on_device(const std::function<HeadRows(int head)>& rows_of, const PassRows* pass) {
  if (engine_.pool->memory()->is_host()) return;
  LayerEntries entries = {.layer = layer_,
                          .shape = &shape_,
                          .pass = pass,
                          .key_scales = key_scales_of(engine_, layer_),
                          .heads = heads_,
                          .rows = {}};
  for (std::size_t h = 0; h < heads_.size(); ++h) entries.rows.push_back(rows_of(static_cast<int>(h)));
  statistics_ = engine_.executor->entry_statistics(std::move(entries));
}

LayerView LayerViews::entries() const {
  const Model::Impl& model = engine_.model->impl();
  const LayerSpec& spec = model.spec.layer(layer_);
  const Rotation& rotation = engine_.rotations[static_cast<std::size_t>(layer_)];
  return {
      .layer = layer_,
      .n_head = spec.n_head,
      .n_kv_head = spec.n_kv_head,
      .shape = attention_shape(model, layer_, shape_.key_type, shape_.value_type),
      .n_tokens = n_tokens_,
      .heads = heads_,
      .key_scales = key_scales_of(engine_, layer_),
      .statistics = statistics_.get(),
      .rotation = {.interleaved = rotation.interleaved,
                   .n_dims = rotation.n_dims,
                   .frequency = rotation.frequency.data(),
                   .magnitude = rotation.magnitude},
      .n_embd = model.spec.n_embd,
  };
}

LayerView LayerViews::of(QueryEvidence& evidence, const EvidenceNeeds& needs, int max_window_rows) {
  LayerView view = entries();
  evidence.fill(view, max_window_rows);
  // An observer of several methods may need both: late rows have less (ReconstructionPass::input_norm).
  if (needs.late_repeat) view.passes = reconstructions_.late;
  if (needs.reconstruction_pass) view.passes = reconstructions_.whole;
  if (needs.earlier_scores) view.earlier_scores = earlier_scores_;
  view.has_output_projection = needs.output_projection;
  if (needs.output_projection && statistics_ == nullptr) {
    if (w_o_.empty()) {
      const Stopwatch watch;
      w_o_ = engine_.executor->output_projection(layer_);
      w_o_s_ = watch.seconds();
    }
    view.w_o = w_o_.data();
  }
  // A device measures rows in the order in which they are stored, and a cut names them by position.
  const bool is_reordered = std::ranges::any_of(runs_, [](const auto& runs) { return !runs.empty(); });
  return statistics_ && is_reordered ? with_copies(view) : view;
}

LayerView LayerViews::with_rows(QueryEvidence& evidence, const EvidenceNeeds& needs) {
  LayerView view = of(evidence, needs);
  return view.statistics != nullptr ? with_copies(view) : view;
}

LayerViews stored_layer(Session::Impl& session, int layer) {
  return {session.engine_impl(), session.cache, session.scores, layer, session.n_tokens()};
}

void keep_entries(Session::Impl& session, std::span<const LayerCut> cuts, const ParallelFor& parallel_for) {
  struct Item {
    int layer, head;
    const std::vector<std::int32_t>*kept, *high;
    std::span<const float> scores;
  };
  std::vector<Item> items;
  for (const LayerCut& cut : cuts) {
    for (std::size_t h = 0; h < cut.kept.size(); ++h) {
      const std::span<const float> scores = cut.scores.empty() ? std::span<const float>{} : cut.scores[h];
      items.push_back({cut.layer, static_cast<int>(h), &cut.kept[h], &cut.high[h], scores});
    }
  }
  parallel_for(static_cast<int>(items.size()), [&](int i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    auto scores = session.scores.make(item.scores);  // before anything is changed: memory may not suffice
    session.cache.keep(item.layer, item.head, *item.kept, *item.high);
    session.scores.set(item.layer, item.head, std::move(scores));
  });
}

}  // namespace winnow
