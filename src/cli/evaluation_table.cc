#include "cli/evaluation_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/number_text.h"
#include "cli/text_table.h"
#include "eval/report/summary.h"

namespace winnow::cli {
namespace {

std::string optional_text(const std::optional<double>& value, int decimals) {
  return value && !std::isnan(*value) ? fixed_text(*value, decimals) : "-";
}

std::string section_table(const eval::Section& section) {
  std::vector<TextTable::Column> columns{
      {"method", Align::kLeft},  {"type kv", Align::kLeft},
      {"budget", Align::kRight}, {"kept %", Align::kRight},
      {"MiB", Align::kRight},    {eval::measure_name(section.measure) + " [95 %]", Align::kRight}};
  if (section.measure == eval::Measure::kDivergence) {
    columns.push_back({"top-1 %", Align::kRight});
    columns.push_back({"PPL ratio", Align::kRight});
  } else {
    columns.push_back({section.measure == eval::Measure::kNll ? "PPL" : "NLL", Align::kRight});
  }
  columns.push_back({"n", Align::kRight});
  TextTable table(columns);
  for (const eval::SummaryRow& row : section.rows) {
    std::vector<std::string> cells{row.condition.method,
                                   row.types.text(),
                                   row.condition.budget.empty() ? "-" : row.condition.budget,
                                   optional_text(100 * row.kept_share, 1),
                                   optional_text(row.bytes_kept / (1 << 20), 1),
                                   eval::interval_text(row.value, section.measure)};
    if (section.measure == eval::Measure::kDivergence) {
      cells.push_back(row.top1 ? fixed_text(100 * *row.top1, 1) : "-");
      cells.push_back(optional_text(row.perplexity_ratio, 3));
    } else if (section.measure == eval::Measure::kNll) {
      cells.push_back(row.nll ? fixed_text(std::exp(*row.nll), 2) : "-");
    } else {
      cells.push_back(optional_text(row.nll, 3));
    }
    cells.push_back(count_text(row.value.n_samples));
    table.row(std::move(cells));
  }
  std::string text = section.title() + "\n" + table.plain();
  for (const std::string& warning : section.warnings) text += "note: " + warning + "\n";
  for (const auto& [reason, n] : section.failures) text += "failed " + count_text(n) + " times: " + reason + "\n";
  return text;
}

}  // namespace

EvaluationTable evaluation_table(const std::string& folder) {
  const eval::Results results = eval::load_results({folder});
  std::string text;
  for (const eval::Section& section : summarize(results)) text += section_table(section) + "\n";
  const auto n = static_cast<std::int64_t>(results.results.size());
  if (n < results.n_expected) {
    text += count_text(n) + " of " + count_text(results.n_expected) + " answers are done.\n";
  }
  const bool has_success = std::any_of(results.results.begin(), results.results.end(),
                                       [](const eval::Result& result) { return result.answer.error.empty(); });
  return {text + "`winnow report " + folder + "` draws them.\n", has_success};
}

}  // namespace winnow::cli
