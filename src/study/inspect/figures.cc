#include "study/inspect/figures.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "charts/charts.h"
#include "study/inspect/kept_data.h"

namespace winnow {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(values.size(), 1));
}

using LayerValue = std::function<double(const LayerOutcome&)>;

// Returns a chart with a line for each cut over the layers.
std::string by_layer(const Analysis& analysis, const std::string& title, charts::Axis y, const LayerValue& value) {
  charts::LineChart chart{
      .title = title, .x = {.label = "layer"}, .y = std::move(y), .series = {}, .width = charts::kNarrow};
  for (const CutOutcome& cut : analysis.cuts) {
    charts::Series& series = chart.series.emplace_back(charts::Series{.name = cut_name(cut), .points = {}, .look = {}});
    for (std::size_t l = 0; l < cut.layers.size(); ++l) {
      if (cut.layers[l].kept.empty()) continue;  // not cut
      const double y_value = value(cut.layers[l]);
      if (chart.y.scale == charts::Scale::kLogarithmic && !(y_value > 0)) continue;
      series.points.push_back({.x = static_cast<double>(l), .y = y_value});
    }
  }
  return to_svg(chart);
}

std::string attention_by_layer(const Analysis& analysis, const std::string& title,
                               const std::function<double(const LayerAttention&)>& value) {
  charts::LineChart chart{
      .title = title, .x = {.label = "layer"}, .y = {.includes_zero = true}, .series = {}, .width = charts::kNarrow};
  charts::Series& series = chart.series.emplace_back(charts::Series{.name = title, .points = {}, .look = {}});
  for (std::size_t l = 0; l < analysis.layers.size(); ++l) {
    if (!analysis.model.layers[l].is_evictable()) continue;
    series.points.push_back({.x = static_cast<double>(l), .y = value(analysis.layers[l])});
  }
  return to_svg(chart);
}

// Returns a map of percentages by layer (columns) and KV head (rows).
std::string head_map(const Analysis& analysis, const std::string& title,
                     const std::function<double(std::size_t layer, std::size_t head)>& percent) {
  charts::HeatMap map{.title = title, .x_label = "layer", .y_label = "KV head", .columns = {}, .rows = {}, .cells = {}};
  map.high = 100;
  map.width = charts::kNarrow;
  std::size_t most_heads = 0;
  const std::vector<LayerOutcome>& layers = analysis.cuts.front().layers;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    map.columns.push_back(std::to_string(l));
    most_heads = std::max(most_heads, layers[l].kept.size());
  }
  for (std::size_t h = 0; h < most_heads; ++h) {
    map.rows.push_back(std::to_string(h));
    std::vector<std::optional<double>>& row = map.cells.emplace_back();
    for (std::size_t l = 0; l < layers.size(); ++l) {
      row.push_back(h < layers[l].kept.size() ? std::optional(percent(l, h)) : std::nullopt);
    }
  }
  return to_svg(map);
}

std::string bars(const Analysis& analysis, const std::string& title, charts::Axis axis,
                 const std::function<double(const CutOutcome&)>& value) {
  charts::BarChart chart{.title = title, .value = std::move(axis), .bars = {}, .width = charts::kNarrow};
  for (const CutOutcome& cut : analysis.cuts) {
    chart.bars.push_back({.name = cut_name(cut), .value = value(cut), .colour = chart.bars.size()});
  }
  return to_svg(chart);
}

const charts::Axis kPercent = {.is_percent = true, .includes_zero = true};

}  // namespace

std::vector<std::string> layer_budget_figures(const Analysis& analysis) {
  const auto n = static_cast<double>(analysis.context.size());
  return {
      by_layer(analysis, "entries kept", kPercent,
               [&](const LayerOutcome& layer) {
                 return static_cast<double>(std::accumulate(layer.kept.begin(), layer.kept.end(), std::int64_t{0})) /
                        (n * static_cast<double>(layer.kept.size()));
               }),
      attention_by_layer(analysis, "dispersion (CAKE)", [](const LayerAttention& layer) { return layer.dispersion; }),
      attention_by_layer(analysis, "shift (CAKE)", [](const LayerAttention& layer) { return layer.shift; }),
      attention_by_layer(analysis, "entropy of scores (LAVa)",
                         [](const LayerAttention& layer) { return layer.lava_entropy; })};
}

std::vector<std::string> head_budget_figures(const Analysis& analysis) {
  std::vector<std::string> figures;
  const auto n = static_cast<double>(analysis.context.size());
  for (const CutOutcome& cut : analysis.cuts) {
    figures.push_back(head_map(analysis, cut_name(cut) + ": % of the entries kept", [&](std::size_t l, std::size_t h) {
      return 100 * static_cast<double>(cut.layers[l].kept[h]) / n;
    }));
  }
  return figures;
}

std::vector<std::string> loss_figures(const Analysis& analysis) {
  charts::Axis logarithmic;
  logarithmic.scale = charts::Scale::kLogarithmic;
  return {by_layer(analysis, "attention of the last row on kept entries", kPercent,
                   [](const LayerOutcome& layer) { return mean(layer.losses.mass); }),
          by_layer(analysis, "L1 change of the attention output", logarithmic,
                   [](const LayerOutcome& layer) { return layer.losses.loss_layer; }),
          by_layer(analysis, "the same as part of Ada-KV's bound", kPercent,
                   [](const LayerOutcome& layer) {
                     return layer.losses.ada_eps > 0 ? layer.losses.loss_layer / layer.losses.ada_eps : 0.0;
                   }),
          bars(analysis, "KL from the full cache, nats", {.includes_zero = true},
               [](const CutOutcome& cut) { return cut.next.kl_mean; })};
}

std::vector<std::string> future_figures(const Analysis& analysis) {
  return {by_layer(analysis, "attention of later tokens on kept entries", kPercent,
                   [](const LayerOutcome& layer) { return mean(layer.future_mass); }),
          by_layer(analysis, "most important entries that are kept", kPercent,
                   [](const LayerOutcome& layer) { return mean(layer.recall); }),
          bars(analysis, "importance lost (LU-KV)", kPercent, [](const CutOutcome& cut) { return cut.oracle_loss; }),
          bars(analysis, "of it, above the best choice (optimality gap)", kPercent,
               [](const CutOutcome& cut) { return cut.optimality_gap(); })};
}

std::vector<std::string> concentration_figures(const Analysis& analysis) {
  std::vector<std::string> figures;
  for (std::size_t s = 1; s < kConcentrationShares.size(); s += 2) {
    const int percent = static_cast<int>(100 * kConcentrationShares[s] + 0.5);
    figures.push_back(
        head_map(analysis, "% of attention on the best " + std::to_string(percent) + " % of the entries",
                 [&](std::size_t l, std::size_t h) { return 100 * analysis.layers[l].concentration[h][s]; }));
  }
  return figures;
}

}  // namespace winnow
