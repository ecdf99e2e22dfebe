#include "eval/report/figures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include "charts/charts.h"
#include "charts/svg.h"
#include "winnow/eviction.h"

namespace winnow::eval {
namespace {

using charts::Axis;
using charts::LineChart;
using charts::Scale;

constexpr double kMebibyte = 1 << 20;

using RowNumber = std::function<std::optional<double>(const SummaryRow&)>;

bool is_full(const SummaryRow& row) { return row.condition.budget.empty(); }

template <typename Chart>
Figure drawn(std::string name, Chart chart) {
  Figure figure{.name = std::move(name), .svg = {}, .narrow = {}};
  chart.width = charts::kWide;
  figure.svg = to_svg(chart);
  chart.width = charts::kNarrow;
  figure.narrow = to_svg(chart);
  return figure;
}

// Returns the look of a method in all plots of a report: its place among the methods that evict.
std::size_t look_of(const Section& section, const Variant& variant) {
  std::size_t place = 0;
  for (const Variant& other : section.variants) {
    if (other == variant) break;
    place += EvictionOptions::parse(other.method).evicts();
  }
  return place;
}

// Returns a series for every method that evicts.
std::vector<charts::Series> series_of(const Section& section, const RowNumber& x, const RowNumber& y,
                                      bool with_intervals) {
  std::vector<charts::Series> all;
  std::map<Variant, std::size_t> places;
  for (const SummaryRow& row : section.rows) {
    const auto px = x(row), py = y(row);
    if (is_full(row) || !px || !py) continue;
    const Variant variant = row.condition.variant();
    const auto [place, is_new] = places.try_emplace(variant, all.size());
    if (is_new) all.push_back({.name = variant.name(), .points = {}, .look = look_of(section, variant)});
    charts::Point point{.x = *px, .y = *py, .note = "budget " + row.condition.budget};
    if (with_intervals && row.value.has_bounds()) {
      point.low = shown_value(row.value.low, section.measure);
      point.high = shown_value(row.value.high, section.measure);
    }
    all[place->second].points.push_back(std::move(point));
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

// Returns the levels of the full caches, one for each pair of entry types. The reference itself is left out: its
// divergence is 0, which a logarithmic axis cannot show.
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

std::vector<Figure> quality_figures(const Section& section, KeptUnit by) {
  const RowNumber value = [&](const SummaryRow& row) -> std::optional<double> {
    return shown_value(row.value.mean, section.measure);
  };
  const RowNumber share = [&](const SummaryRow& row) -> std::optional<double> {
    return by == KeptUnit::kBytes ? section.bytes_share(row) : row.kept_share;
  };
  const RowNumber mebibytes = [](const SummaryRow& row) -> std::optional<double> { return row.bytes_kept / kMebibyte; };
  const RowNumber nll = [](const SummaryRow& row) { return row.nll; };
  const RowNumber token_ms = [](const SummaryRow& row) { return row.token_ms; };
  const Axis kept_axis{
      .label = by == KeptUnit::kBytes ? "bytes kept of the full cache's in f16" : "entries kept of the prompt's",
      .scale = Scale::kLogarithmic,
      .is_percent = true};
  const std::string name = measure_name(section.measure);

  std::vector<Figure> figures;
  const auto add = [&](const std::string& what, const std::string& title, const Axis& x_axis, const RowNumber& x,
                       const Axis& y_axis, const RowNumber& y, bool with_intervals) {
    LineChart chart{.title = title, .x = x_axis, .y = y_axis, .series = series_of(section, x, y, with_intervals)};
    if (chart.series.empty()) return;
    chart.levels = full_levels(section, y);
    figures.push_back(drawn(stem(section, what), chart));
  };
  add(by == KeptUnit::kBytes ? "by-bytes" : "by-budget",
      section.title() + ": " + name + (by == KeptUnit::kBytes ? " against bytes" : " against budget"), kept_axis, share,
      measure_axis(section), value, true);
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
  for (const SummaryRow& row : section.rows) {
    if (is_full(row)) continue;
    chart.bars.push_back(
        {.name = row.condition.label(), .value = row.evict_ms, .colour = look_of(section, row.condition.variant())});
  }
  if (chart.bars.empty()) return {};
  std::stable_sort(chart.bars.begin(), chart.bars.end(),
                   [](const charts::Bar& a, const charts::Bar& b) { return a.value < b.value; });
  return {drawn(stem(section, "eviction-time"), chart)};
}

std::vector<Figure> needle_figures(const Section& section) {
  std::vector<Figure> figures;
  for (const NeedleMap& map : section.needle_maps) {
    charts::HeatMap chart{.title = map.task + ", " + map.condition.label(),
                          .x_label = "length",
                          .y_label = "depth, %",
                          .low = 0,
                          .high = 100,
                          .width = charts::kNarrow};
    for (const double length : map.lengths) chart.columns.push_back(charts::label_of(length, true));
    for (const double depth : map.depths) chart.rows.push_back(charts::label_of(depth));
    for (const auto& row : map.cells) {
      auto& cells = chart.cells.emplace_back();
      for (const std::optional<double>& cell : row) cells.push_back(cell ? std::optional(100 * *cell) : std::nullopt);
    }
    const std::string svg = to_svg(chart);
    figures.push_back({stem(section, "needles-" + map.task + "-" + map.condition.label()), svg, svg});
  }
  return figures;
}

}  // namespace winnow::eval
