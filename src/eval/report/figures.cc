#include "eval/report/figures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "charts/charts.h"
#include "charts/svg.h"

namespace winnow::eval {
namespace {

using charts::Axis;
using charts::LineChart;
using charts::Scale;

constexpr double kMebibyte = 1 << 20;

using RowNumber = std::function<std::optional<double>(const SummaryRow&)>;

bool is_full(const SummaryRow& row) { return row.condition.budget.empty(); }

// A series for every method that evicts, in the section's order; `colour` of a method is its place.
std::vector<charts::Series> series_of(const Section& section, const RowNumber& x, const RowNumber& y,
                                      bool with_intervals) {
  std::vector<charts::Series> all;
  for (const SummaryRow& row : section.rows) {
    if (is_full(row)) continue;
    const std::string name = row.condition.variant().name();
    if (all.empty() || all.back().name != name) all.push_back({name, {}});
    const auto px = x(row), py = y(row);
    if (!px || !py) continue;
    charts::Point point{.x = *px, .y = *py, .note = "budget " + row.condition.budget};
    if (with_intervals && row.value.has_bounds()) {
      point.low = shown_value(row.value.low, section.measure);
      point.high = shown_value(row.value.high, section.measure);
    }
    all.back().points.push_back(std::move(point));
  }
  for (charts::Series& series : all) {
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const auto& a, const auto& b) { return a.x < b.x; });
  }
  return all;
}

std::string stem(const Section& section, const std::string& what) {
  return file_stem(section.benchmark + "-" + section.question + "-" + what);
}

Axis measure_axis(const Section& section) {
  if (section.measure == Measure::kScore) return {.label = "score", .includes_zero = true};
  if (section.measure == Measure::kDivergence) {
    return {.label = "KL to the full cache, nats a token", .scale = Scale::kLogarithmic};
  }
  return {.label = "NLL of the continuation, nats a token"};
}

// Full caches: one for each pair of entry types. The one that is compared with has no distance, and a logarithmic axis
// no place for it.
std::vector<charts::Level> full_levels(const Section& section, const RowNumber& value) {
  std::vector<charts::Level> levels;
  for (const SummaryRow& row : section.rows) {
    const auto y = value(row);
    if (!is_full(row) || !y || (section.measure == Measure::kDivergence && *y <= 0)) continue;
    levels.push_back({Variant{"full cache", row.condition.types}.name(), *y});
  }
  return levels;
}

}  // namespace

std::string file_stem(const std::string& text) {
  std::string stem;
  for (const char c : text) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    if (is_plain) {
      stem += c;
    } else if (c == '%') {
      stem += "pc";
    } else if (!stem.empty() && stem.back() != '-') {
      stem += '-';
    }
  }
  while (stem.ends_with('-')) stem.pop_back();
  return stem;
}

std::vector<Figure> quality_figures(const Section& section) {
  const RowNumber value = [&](const SummaryRow& row) -> std::optional<double> {
    return shown_value(row.value.mean, section.measure);
  };
  const RowNumber share = [](const SummaryRow& row) -> std::optional<double> { return row.kept_share; };
  const RowNumber mebibytes = [](const SummaryRow& row) -> std::optional<double> { return row.bytes_kept / kMebibyte; };
  const RowNumber nll = [](const SummaryRow& row) { return row.nll; };
  const RowNumber token_ms = [](const SummaryRow& row) { return row.token_ms; };
  const Axis kept_axis{.label = "entries kept of the prompt's", .scale = Scale::kLogarithmic, .is_percent = true};
  const std::string name = measure_name(section.measure);

  std::vector<Figure> figures;
  const auto add = [&](const std::string& what, const std::string& title, const Axis& x_axis, const RowNumber& x,
                       const Axis& y_axis, const RowNumber& y, bool with_intervals) {
    LineChart chart{.title = title, .x = x_axis, .y = y_axis, .series = series_of(section, x, y, with_intervals)};
    const bool has_points = std::any_of(chart.series.begin(), chart.series.end(),
                                        [](const charts::Series& series) { return !series.points.empty(); });
    if (!has_points) return;
    chart.levels = full_levels(section, y);
    figures.push_back({stem(section, what), to_svg(chart)});
  };
  add("by-budget", section.title() + ": " + name + " against budget", kept_axis, share, measure_axis(section), value,
      true);
  if (section.measure == Measure::kScore) {
    add("likelihood", section.title() + ": likelihood of the reference answer", kept_axis, share,
        {.label = "NLL, nats a token"}, nll, false);
  }
  add("by-memory", section.title() + ": " + name + " against memory",
      {.label = "MiB of KV cache after the cut, mean of a prompt", .scale = Scale::kLogarithmic}, mebibytes,
      measure_axis(section), value, true);
  add("by-speed", section.title() + ": " + name + " against decoding speed", {.label = "ms a generated token"},
      token_ms, measure_axis(section), value, true);
  return figures;
}

std::vector<Figure> speed_figures(const Section& section) {
  charts::BarChart chart{.title = section.title() + ": time to choose what stays",
                         .value = {.label = "ms a prompt of " +
                                            charts::label_of(section.rows.empty() ? 0 : section.rows[0].prompt_tokens) +
                                            " tokens (mean)"}};
  std::size_t colour = 0;
  std::string last;
  for (const SummaryRow& row : section.rows) {
    if (is_full(row)) continue;
    const std::string name = row.condition.variant().name();
    if (!last.empty() && last != name) ++colour;
    last = name;
    chart.bars.push_back({.name = row.condition.label(), .value = row.evict_ms, .colour = colour});
  }
  if (chart.bars.empty()) return {};
  return {{stem(section, "eviction-time"), to_svg(chart)}};
}

std::vector<Figure> needle_figures(const Section& section) {
  std::vector<Figure> figures;
  for (const NeedleMap& map : section.needle_maps) {
    charts::HeatMap chart{.title = map.task + ", " + map.condition.label(),
                          .x_label = "length",
                          .y_label = "depth, %",
                          .low = 0,
                          .high = 100,
                          .width = 420};
    for (const double length : map.lengths) chart.columns.push_back(charts::label_of(length, true));
    for (const double depth : map.depths) chart.rows.push_back(charts::label_of(depth));
    for (const auto& row : map.cells) {
      auto& cells = chart.cells.emplace_back();
      for (const std::optional<double>& cell : row) cells.push_back(cell ? std::optional(100 * *cell) : std::nullopt);
    }
    figures.push_back({stem(section, "needles-" + map.task + "-" + map.condition.label()), to_svg(chart)});
  }
  return figures;
}

}  // namespace winnow::eval
