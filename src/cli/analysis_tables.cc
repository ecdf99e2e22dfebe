#include "cli/analysis_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "cli/number_text.h"
#include "cli/run_report.h"
#include "cli/text_table.h"
#include "engine/count_raised.h"

namespace winnow::cli {
namespace {

using Column = TextTable::Column;

Column number(const std::string& title) { return {title, Align::kRight}; }

std::string percent(double part) { return fixed_text(part * 100, 1); }

std::string significant(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", value);
  return buffer;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(values.size(), 1));
}

// Returns the mean of `value` over the layers.
template <typename Value>
double layer_mean(const CutOutcome& cut, const Value& value) {
  double sum = 0;
  for (const LayerOutcome& layer : cut.layers) sum += value(layer);
  return sum / static_cast<double>(cut.layers.size());
}

// Returns the largest loss as a share of its bound, over layers and heads, which shows how tight the bound is.
double closest(const CutOutcome& cut, const std::vector<double> LayerLosses::*bound) {
  double largest = 0;
  for (const LayerOutcome& layer : cut.layers) {
    const std::vector<double>& bounds = layer.losses.*bound;
    for (std::size_t h = 0; h < bounds.size(); ++h) {
      if (bounds[h] > 0) largest = std::max(largest, layer.losses.loss_head[h] / bounds[h]);
    }
  }
  return largest;
}

double closest(const CutOutcome& cut, const double LayerLosses::*bound) {
  double largest = 0;
  for (const LayerOutcome& layer : cut.layers) {
    if (layer.losses.*bound > 0) largest = std::max(largest, layer.losses.loss_layer / (layer.losses.*bound));
  }
  return largest;
}

// Returns the percentage of the query heads whose output changes less than under the first method with the same budget
// (CriticalKV).
std::string heads_below_first(const Analysis& analysis, const CutOutcome& cut) {
  for (const CutOutcome& first : analysis.cuts) {
    if (first.budget != cut.budget) continue;
    if (&first == &cut) return "-";
    std::size_t n_below = 0, n = 0;
    for (std::size_t l = 0; l < cut.layers.size(); ++l) {
      const std::vector<double>&a = cut.layers[l].losses.loss_head, &b = first.layers[l].losses.loss_head;
      for (std::size_t h = 0; h < a.size(); ++h, ++n) n_below += a[h] < b[h] ? 1U : 0U;
    }
    return percent(static_cast<double>(n_below) / static_cast<double>(n));
  }
  return "-";
}

// Returns a line for each cut that stores heads in more bits than the method says; "" if none does.
std::string raised_heads(const Analysis& analysis) {
  std::string lines;
  for (const CutOutcome& cut : analysis.cuts) {
    const std::int64_t n = count_raised(cut.raised);
    if (n > 0) lines += "\n" + cut.method + ", " + cut.budget + ": " + raised_text(n);
  }
  return lines.empty() ? lines : lines + "\n";
}

std::string next_table(const Analysis& analysis) {
  TextTable table({{"method"},
                   number("budget"),
                   number("kept %"),
                   number("bytes %"),
                   number("KL"),
                   number("largest"),
                   number("perplexity"),
                   number("same token %"),
                   number("logits L1")});
  for (const CutOutcome& cut : analysis.cuts) {
    table.row({cut.method, cut.budget,
               percent(static_cast<double>(cut.entries_kept) / static_cast<double>(cut.entries_full)),
               percent(static_cast<double>(cut.bytes_kept) / static_cast<double>(analysis.bytes_full)),
               significant(cut.next.kl_mean), significant(cut.next.kl_max), fixed_text(cut.next.perplexity, 2),
               percent(cut.next.agreement), significant(cut.next.first_logits_l1)});
  }
  const NextTokens& next = analysis.cuts.front().next;
  return "Next tokens: " + count_text(next.n) + " predictions of " +
         (analysis.is_answer ? "the full cache's answer" : "the text's continuation") + ", perplexity " +
         fixed_text(next.perplexity_full, 2) + " with the full cache\n\n" + table.plain(200) + raised_heads(analysis);
}

std::string loss_table(const Analysis& analysis) {
  TextTable table({{"method"},
                   number("budget"),
                   number("mass %"),
                   number("L1 layer"),
                   number("/eps"),
                   number("/lava"),
                   number("L1 head"),
                   number("/theta"),
                   number("/theta-hat"),
                   number("heads below %")});
  for (const CutOutcome& cut : analysis.cuts) {
    const bool has_stages = !cut.layers.front().losses.theta_hat.empty();
    table.row(
        {cut.method, cut.budget, percent(layer_mean(cut, [](const LayerOutcome& l) { return mean(l.losses.mass); })),
         significant(layer_mean(cut, [](const LayerOutcome& l) { return l.losses.loss_layer; })),
         fixed_text(closest(cut, &LayerLosses::ada_eps), 3), fixed_text(closest(cut, &LayerLosses::lava_bound), 3),
         significant(layer_mean(cut, [](const LayerOutcome& l) { return mean(l.losses.loss_head); })),
         fixed_text(closest(cut, &LayerLosses::theta), 3),
         has_stages ? fixed_text(closest(cut, &LayerLosses::theta_hat), 3) : "-", heads_below_first(analysis, cut)});
  }
  return "Change of the context's last row: attention mass kept, L1 change of the layers' and heads' attention output\n"
         "(means), and the largest part of a bound that it reaches in any layer or head; heads below: those with a\n"
         "smaller change than under the first method with that budget\n\n" +
         table.plain(200);
}

std::string oracle_table(const Analysis& analysis) {
  TextTable table({{"method"},
                   number("budget"),
                   number("loss %"),
                   number("best ranking"),
                   number("best budgets"),
                   number("best both"),
                   number("gap"),
                   number("set recall %"),
                   number("future mass %"),
                   number("output error %")});
  for (const CutOutcome& cut : analysis.cuts) {
    table.row({cut.method, cut.budget, percent(cut.oracle_loss), percent(cut.least_loss), percent(cut.best_allocation),
               percent(cut.best_loss), percent(cut.optimality_gap()),
               percent(layer_mean(cut, [](const LayerOutcome& l) { return mean(l.recall); })),
               percent(layer_mean(cut, [](const LayerOutcome& l) { return mean(l.future_mass); })),
               percent(cut.output_error)});
  }
  return "What the continuation turns out to need: importance lost (LU-KV's loss), and what the best ranking with "
         "these\n"
         "head budgets, the best budgets with this ranking, and both would lose; the squared error of the attention "
         "output\n"
         "with the entries as they are stored, relative to its square\n\n" +
         table.plain(200);
}

std::string bytes_table(const Analysis& analysis) {
  std::vector<Column> columns = {{"entries in"}};
  for (const double share : kByteShares) columns.push_back(number(fixed_text(100 * share, 0) + " % of bytes"));
  TextTable table(columns);
  for (std::size_t t = 0; t < kByteTypes.size(); ++t) {
    std::vector<std::string> cells = {std::string(entry_type_name(kByteTypes[t]))};
    for (const double loss : analysis.by_bytes[t]) cells.push_back(std::isnan(loss) ? "-" : percent(loss));
    table.row(cells);
  }
  return "The same by bytes: the least importance lost, in %, if entries take this share of the full cache's bytes in "
         "f16\n(without the cost of rounding)\n\n" +
         table.plain(200);
}

std::string attention_table(const Analysis& analysis) {
  std::vector<Column> columns = {number("layer"), number("dispersion"), number("shift"), number("entropy")};
  for (const double share : kConcentrationShares)
    columns.push_back(number("top " + percent(share).substr(0, percent(share).find('.')) + " %"));
  TextTable table(columns);
  for (std::size_t l = 0; l < analysis.layers.size(); ++l) {
    const LayerAttention& layer = analysis.layers[l];
    std::vector<std::string> cells = {std::to_string(l), fixed_text(layer.dispersion, 1), significant(layer.shift),
                                      fixed_text(layer.lava_entropy, 3)};
    for (std::size_t s = 0; s < kConcentrationShares.size(); ++s) {
      double sum = 0;
      for (const std::vector<double>& head : layer.concentration) sum += head[s];
      cells.push_back(percent(sum / static_cast<double>(layer.concentration.size())));
    }
    table.row(cells);
  }
  return "Attention of the last " + std::to_string(analysis.window) +
         " rows: CAKE's dispersion and shift, LAVa's entropy, and the percentage of attention on a\n"
         "head's best entries (mean over the KV heads)\n\n" +
         table.plain(200);
}

std::string kept_table(const Analysis& analysis) {
  std::string text = "Entries kept in each KV head\n";
  for (const CutOutcome& cut : analysis.cuts) {
    text += "\n" + cut.method + ", " + cut.budget + "\n";
    for (std::size_t l = 0; l < cut.layers.size(); ++l) {
      text += padded_cell(std::to_string(l), 4, Align::kRight);
      for (const std::int32_t n : cut.layers[l].kept) text += padded_cell(count_text(n), 8, Align::kRight);
      text += "\n";
    }
  }
  return text;
}

}  // namespace

std::string analysis_tables(const Analysis& analysis, bool layers) {
  std::string text = count_text(static_cast<std::int64_t>(analysis.context.size())) + " tokens of context\n\n" +
                     next_table(analysis) + "\n" + loss_table(analysis) + "\n" + oracle_table(analysis) + "\n" +
                     bytes_table(analysis);
  if (layers) text += "\n" + attention_table(analysis) + "\n" + kept_table(analysis);
  return text;
}

}  // namespace winnow::cli
