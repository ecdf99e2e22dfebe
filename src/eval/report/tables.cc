#include "eval/report/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace winnow::eval {
namespace {

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string fixed(const std::optional<double>& value, int decimals, double factor = 1) {
  return value ? fixed(factor * *value, decimals) : "-";
}

std::string mebibytes(double bytes) { return fixed(bytes / (1 << 20), 2); }

std::string budget_text(const Condition& condition) { return condition.budget.empty() ? "-" : condition.budget; }

std::vector<std::string> name_cells(const SummaryRow& row) {
  return {row.condition.method, row.types.text(), budget_text(row.condition)};
}

constexpr const char* kTypeColumn = "type kv";

std::string signed_value(double value, Measure measure) { return (value > 0 ? "+" : "") + value_text(value, measure); }

std::string comparison_text(const Comparison& comparison, Measure measure) {
  const Interval& difference = comparison.difference;
  if (difference.n_samples == 0) return "";
  if (measure == Measure::kDivergence) {
    const int decimals = difference.mean < 0.1 ? 3 : 2;  // two significant digits for 0.025x
    const std::string text = fixed(difference.mean, decimals) + "x";
    if (!difference.has_bounds()) return text;
    return text + " [" + fixed(difference.low, decimals) + ", " + fixed(difference.high, decimals) + "]";
  }
  const std::string text = signed_value(difference.mean, measure);
  if (!difference.has_bounds()) return text;
  return text + " [" + signed_value(difference.low, measure) + ", " + signed_value(difference.high, measure) + "]";
}

std::string comparison_comment(Measure measure, const std::string& row, const std::string& column) {
  const bool is_ratio = measure == Measure::kDivergence;
  return measure_name(measure) + " of " + row + (is_ratio ? " over that of " : " less that of ") + column +
         ", on the same samples, with 95 % intervals; bold where the interval leaves \"no difference\" out.";
}

// Returns a field, with quotes if it needs them.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", value);
  return text;
}

std::string csv_number(const std::optional<double>& value) { return value ? csv_number(*value) : ""; }

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : ",") + csv_field(field);
  // The first field is never empty.
  return line + "\n";
}

// A pipe or a line end would end the cell.
std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') {
      cell += "\\|";
    } else {
      cell += c == '\n' ? ' ' : c;
    }
  }
  return cell;
}

std::string markdown_table(const TextGrid& grid) {
  std::string text = grid.title.empty() ? "" : "### " + grid.title + "\n\n";
  if (!grid.comment.empty()) text += grid.comment + "\n\n";
  std::string rule = "|";
  text += "|";
  for (std::size_t c = 0; c < grid.columns.size(); ++c) {
    text += " " + markdown_cell(grid.columns[c]) + " |";
    rule += c < grid.n_left ? "---|" : "---:|";
  }
  text += "\n" + rule + "\n";
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    text += "|";
    for (std::size_t c = 0; c < grid.rows[r].size(); ++c) {
      const bool is_strong = !grid.strong.empty() && grid.strong[r][c] && !grid.rows[r][c].empty();
      const std::string mark = is_strong ? "**" : "";
      text += " " + mark + markdown_cell(grid.rows[r][c]) + mark + " |";
    }
    text += "\n";
  }
  return text + "\n";
}

}  // namespace

TextGrid overview_grid(const Section& section) {
  TextGrid grid{.title = "Every method and budget",
                .columns = {"method", kTypeColumn, "budget", "kept %", measure_name(section.measure), "n"}};
  const auto any = [&](auto get) {
    for (const SummaryRow& row : section.rows) {
      if (get(row)) return true;
    }
    return false;
  };
  const bool is_score = section.measure == Measure::kScore;
  const bool has_nll = is_score && any([](const SummaryRow& row) { return row.nll.has_value(); });
  const bool has_keyword = any([](const SummaryRow& row) { return row.keyword.has_value(); });
  const bool has_failures = any([](const SummaryRow& row) { return row.n_failed > 0; });
  if (section.measure == Measure::kDivergence) {
    grid.columns.insert(grid.columns.end(), {"top-1 equal %", "perplexity ratio"});
  }
  if (section.measure == Measure::kNll) grid.columns.push_back("perplexity");
  if (has_nll) grid.columns.push_back("NLL of the reference");
  if (has_keyword) grid.columns.push_back("keyword %");
  if (has_failures) grid.columns.push_back("failed");
  for (const SummaryRow& row : section.rows) {
    std::vector<std::string> cells = name_cells(row);
    cells.insert(cells.end(), {fixed(100 * row.kept_share, 1), interval_text(row.value, section.measure),
                               std::to_string(row.value.n_samples)});
    if (section.measure == Measure::kDivergence) {
      cells.push_back(fixed(row.top1, 1, 100));
      cells.push_back(fixed(row.perplexity_ratio, 3));
    }
    if (section.measure == Measure::kNll) cells.push_back(fixed(std::exp(row.value.mean), 2));
    if (has_nll) cells.push_back(fixed(row.nll, 3));
    if (has_keyword) cells.push_back(fixed(row.keyword, 1, 100));
    if (has_failures) cells.push_back(std::to_string(row.n_failed));
    grid.rows.push_back(std::move(cells));
  }
  return grid;
}

namespace {

// Sorts the variants by the mean of their places among the methods at every budget; the full caches stay first.
void sort_by_rank(const Section& section, std::vector<Variant>& variants) {
  std::map<Variant, std::pair<double, int>> places;
  std::string budget;
  int place = 0;
  for (const SummaryRow& row : section.rows) {
    if (row.condition.budget != budget) place = 0;
    budget = row.condition.budget;
    auto& [sum, n] = places[row.condition.variant()];
    sum += budget.empty() ? -1 : place++;
    ++n;
  }
  const auto mean = [&](const Variant& variant) { return places.at(variant).first / places.at(variant).second; };
  std::stable_sort(variants.begin(), variants.end(),
                   [&](const Variant& a, const Variant& b) { return mean(a) < mean(b); });
}

}  // namespace

TextGrid budget_grid(const Section& section) {
  std::vector<std::string> budgets;
  std::vector<Variant> variants;
  std::map<Condition, std::string> values;
  const auto add_new = [](auto& list, const auto& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const SummaryRow& row : section.rows) {
    add_new(variants, row.condition.variant());
    if (!row.condition.budget.empty()) add_new(budgets, row.condition.budget);
    values[row.condition] = interval_text(row.value, section.measure);
  }
  TextGrid grid{.title = "By budget",
                .comment = measure_name(section.measure) + ", with 95 % intervals; the full cache has no budget.",
                .columns = {"method", kTypeColumn},
                .n_left = 2};
  if (budgets.size() < 2) return grid;
  sort_by_rank(section, variants);
  grid.columns.insert(grid.columns.end(), budgets.begin(), budgets.end());
  for (const Variant& variant : variants) {
    std::vector<std::string> cells{variant.method, variant.types.text()};
    for (const std::string& budget : budgets) {
      auto found = values.find({variant.method, budget, variant.types});
      if (found == values.end()) found = values.find({variant.method, "", variant.types});
      cells.push_back(found == values.end() ? "" : found->second);
    }
    grid.rows.push_back(std::move(cells));
  }
  return grid;
}

namespace {

// Returns the measure at a share of the bytes; points ascend by share. Returns "" outside of the measured range.
std::string at_bytes(const std::vector<std::pair<double, double>>& points, double share, Measure measure) {
  for (const auto& [x, y] : points) {
    if (std::abs(std::log(x / share)) < 0.05) return value_text(y, measure);
  }
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto& [x0, y0] = points[i - 1];
    const auto& [x1, y1] = points[i];
    if (share < x0 || share > x1) continue;
    const double t = std::log(share / x0) / std::log(x1 / x0);
    const bool is_positive = measure == Measure::kDivergence && y0 > 0 && y1 > 0;
    const double y = is_positive ? std::exp(std::lerp(std::log(y0), std::log(y1), t)) : std::lerp(y0, y1, t);
    return "~" + value_text(y, measure);
  }
  return "";
}

}  // namespace

TextGrid bytes_grid(const Section& section) {
  constexpr double kShares[] = {0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01};
  std::map<Variant, std::vector<std::pair<double, double>>> points;
  std::vector<Variant> variants;
  for (const SummaryRow& row : section.rows) {
    const double share = section.bytes_share(row);
    if (row.condition.budget.empty() || !(share > 0) || row.value.n_samples == 0) continue;
    auto& of_variant = points[row.condition.variant()];
    if (of_variant.empty()) variants.push_back(row.condition.variant());
    of_variant.emplace_back(share, row.value.mean);
  }
  TextGrid grid{.title = "At equal bytes",
                .comment = measure_name(section.measure) +
                           " by the bytes that are kept, of the full cache's in f16; ~: between two budgets.",
                .columns = {"method", kTypeColumn},
                .n_left = 2};
  for (auto& [variant, of_variant] : points) std::sort(of_variant.begin(), of_variant.end());
  sort_by_rank(section, variants);
  std::vector<std::vector<std::string>> rows;
  for (const Variant& variant : variants) rows.push_back({variant.method, variant.types.text()});
  for (const double share : kShares) {
    std::vector<std::string> cells;
    for (const Variant& variant : variants) cells.push_back(at_bytes(points.at(variant), share, section.measure));
    if (std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return cell.empty(); })) continue;
    grid.columns.push_back(fixed(100 * share, 0) + "%bytes");
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].push_back(std::move(cells[r]));
  }
  if (grid.columns.size() > 3) grid.rows = std::move(rows);
  return grid;
}

TextGrid kept_grid(const Section& section, KeptUnit by) {
  return by == KeptUnit::kBytes ? bytes_grid(section) : budget_grid(section);
}

TextGrid against_grid(const Section& section, const std::string& variant) {
  TextGrid grid{.title = "Against " + variant,
                .comment = comparison_comment(section.measure, "the method", variant),
                .columns = {"method", kTypeColumn},
                .n_left = 2};
  std::vector<Variant> rows;
  std::map<Condition, const Comparison*> comparisons;
  for (const ComparisonTable& table : section.comparisons) {
    const auto column = std::find_if(table.variants.begin(), table.variants.end(),
                                     [&](const Variant& other) { return other.name() == variant; });
    if (column == table.variants.end()) continue;
    grid.columns.push_back(table.budget);
    for (std::size_t r = 0; r < table.variants.size(); ++r) {
      const Variant& row = table.variants[r];
      if (row == *column) continue;
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
      comparisons[{row.method, table.budget, row.types}] =
          &table.cells[r][static_cast<std::size_t>(column - table.variants.begin())];
    }
  }
  sort_by_rank(section, rows);
  for (const Variant& row : rows) {
    std::vector<std::string> cells{row.method, row.types.text()};
    std::vector<bool> strong(grid.n_left, false);
    for (std::size_t c = grid.n_left; c < grid.columns.size(); ++c) {
      const auto found = comparisons.find({row.method, grid.columns[c], row.types});
      cells.push_back(found == comparisons.end() ? "" : comparison_text(*found->second, section.measure));
      strong.push_back(found != comparisons.end() && found->second->is_clear);
    }
    grid.rows.push_back(std::move(cells));
    grid.strong.push_back(std::move(strong));
  }
  return grid;
}

TextGrid cost_grid(const Section& section) {
  TextGrid grid{.title = "Memory and time",
                .columns = {"method", kTypeColumn, "budget", measure_name(section.measure), "KV MiB", "of full MiB",
                            "choosing ms"}};
  bool any_alone = false;
  for (const SummaryRow& row : section.rows) any_alone = any_alone || row.prefill_s.has_value();
  if (any_alone) {
    grid.columns.insert(grid.columns.end(), {"peak KV MiB", "prefill s", "ms a token"});
  } else {
    grid.comment =
        "Times of prefill and decoding belong to all methods that ran together; `winnow eval --batch 1` measures each "
        "by "
        "itself.";
  }
  for (const SummaryRow& row : section.rows) {
    std::vector<std::string> cells = name_cells(row);
    cells.insert(cells.end(), {value_text(row.value.mean, section.measure), mebibytes(row.bytes_kept),
                               mebibytes(row.bytes_full), fixed(row.evict_ms, 1)});
    if (any_alone) {
      cells.push_back(row.bytes_peak ? mebibytes(*row.bytes_peak) : "-");
      cells.push_back(fixed(row.prefill_s, 2));
      cells.push_back(fixed(row.token_ms, 1));
    }
    grid.rows.push_back(std::move(cells));
  }
  return grid;
}

std::vector<TextGrid> breakdown_grids(const Section& section) {
  std::vector<TextGrid> grids;
  for (const Breakdown& breakdown : section.breakdowns) {
    TextGrid grid{.title = "By " + breakdown.by, .columns = {"method", kTypeColumn, "budget"}};
    grid.columns.insert(grid.columns.end(), breakdown.columns.begin(), breakdown.columns.end());
    for (std::size_t r = 0; r < section.rows.size(); ++r) {
      std::vector<std::string> cells = name_cells(section.rows[r]);
      for (const Interval& cell : breakdown.cells[r]) cells.push_back(interval_text(cell, section.measure));
      grid.rows.push_back(std::move(cells));
    }
    grids.push_back(std::move(grid));
  }
  return grids;
}

std::vector<TextGrid> comparison_grids(const Section& section) {
  std::vector<TextGrid> grids;
  for (const ComparisonTable& table : section.comparisons) {
    TextGrid grid{.title = "Methods against each other at " + table.budget,
                  .comment = comparison_comment(section.measure, "the row", "the column"),
                  .columns = {""},
                  .n_left = 1};
    for (const Variant& variant : table.variants) grid.columns.push_back(variant.name());
    for (std::size_t r = 0; r < table.variants.size(); ++r) {
      std::vector<std::string> cells{table.variants[r].name()};
      std::vector<bool> strong{false};
      for (const Comparison& comparison : table.cells[r]) {
        cells.push_back(comparison_text(comparison, section.measure));
        strong.push_back(comparison.is_clear);
      }
      grid.rows.push_back(std::move(cells));
      grid.strong.push_back(std::move(strong));
    }
    grids.push_back(std::move(grid));
  }
  return grids;
}

std::string csv(const std::vector<Section>& sections) {
  const std::vector<std::string> columns{
      "benchmark",  "question",   "by",         "part",     "method",    "budget",
      "key_type",   "value_type", "measure",    "mean",     "low",       "high",
      "samples",    "clusters",   "nll",        "keyword",  "top1",      "perplexity_ratio",
      "kept_share", "bytes_kept", "bytes_full", "evict_ms", "prefill_s", "token_ms",
      "failed",     "kept_whole", "truncated"};
  std::string text = csv_line(columns);
  for (const Section& section : sections) {
    const auto add = [&](const std::string& by, const std::string& part, const SummaryRow& row, const Interval& value,
                         bool is_whole) {
      std::vector<std::string> fields{section.benchmark,
                                      section.question,
                                      by,
                                      part,
                                      row.condition.method,
                                      row.condition.budget,
                                      row.types.key,
                                      row.types.value,
                                      measure_name(section.measure),
                                      csv_number(shown_value(value.mean, section.measure)),
                                      csv_number(shown_value(value.low, section.measure)),
                                      csv_number(shown_value(value.high, section.measure)),
                                      std::to_string(value.n_samples),
                                      std::to_string(value.n_clusters)};
      if (is_whole) {
        for (const auto& number : {row.nll, row.keyword, row.top1, row.perplexity_ratio})
          fields.push_back(csv_number(number));
        for (const double number : {row.kept_share, row.bytes_kept, row.bytes_full, row.evict_ms}) {
          fields.push_back(csv_number(number));
        }
        fields.push_back(csv_number(row.prefill_s));
        fields.push_back(csv_number(row.token_ms));
        for (const int n : {row.n_failed, row.n_whole, row.n_truncated}) fields.push_back(std::to_string(n));
      } else {
        fields.resize(columns.size());
      }
      text += csv_line(fields);
    };
    for (std::size_t r = 0; r < section.rows.size(); ++r) {
      add("all", "", section.rows[r], section.rows[r].value, true);
      for (const Breakdown& breakdown : section.breakdowns) {
        for (std::size_t c = 0; c < breakdown.columns.size(); ++c) {
          if (breakdown.cells[r][c].n_samples > 0) {
            add(breakdown.by, breakdown.columns[c], section.rows[r], breakdown.cells[r][c], false);
          }
        }
      }
    }
  }
  return text;
}

std::vector<std::string> headline(const Results& results, const std::vector<Section>& sections) {
  const std::size_t n = results.results.size();
  std::vector<std::string> lines{
      std::to_string(n) + " answers of " + (results.model.empty() ? "a model" : results.model) + " to " +
      std::to_string(sections.size()) + (sections.size() == 1 ? " benchmark." : " benchmarks and question modes.") +
      " Intervals are 95 % bootstrap intervals over samples; samples of one source are drawn "
      "together."};
  if (static_cast<std::int64_t>(n) < results.n_expected) {
    lines.push_back("The evaluation is not finished: it has " + std::to_string(n) + " of " +
                    std::to_string(results.n_expected) + " answers.");
  }
  return lines;
}

std::string markdown(const Results& results, const std::vector<Section>& sections, const std::string& against,
                     KeptUnit by) {
  std::string text = "# Evaluation\n\n";
  for (const std::string& line : headline(results, sections)) text += line + "\n\n";
  for (const Section& section : sections) {
    text += "## " + section.title() + "\n\n";
    for (const std::string& warning : section.warnings) text += "- " + warning + "\n";
    for (const auto& [reason, n] : section.failures)
      text += "- Failed " + std::to_string(n) + " times: " + reason + "\n";
    if (!section.warnings.empty() || !section.failures.empty()) text += "\n";
    for (const TextGrid& grid : {kept_grid(section, by), against_grid(section, against)}) {
      if (!grid.rows.empty()) text += markdown_table(grid);
    }
    text += markdown_table(overview_grid(section));
    for (const TextGrid& grid : breakdown_grids(section)) text += markdown_table(grid);
    for (const TextGrid& grid : comparison_grids(section)) text += markdown_table(grid);
    text += markdown_table(cost_grid(section));
  }
  return text;
}

}  // namespace winnow::eval
