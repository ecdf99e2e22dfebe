// A summary of the answers: means with intervals for every method and budget, by task, and methods compared with each
// other on the same samples.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/results.h"
#include "eval/statistics.h"

namespace winnow::eval {

// The quantity that a benchmark reports.
enum class Measure { kScore, kDivergence, kNll };

// The types of a Variant whose method chooses the types of its entries, by the budget for one: SummaryRow::types has
// them.
inline const EntryTypes kOwnTypes{"own", "own"};

// A method with the entry types of its cache: a line of a plot.
struct Variant {
  std::string method;
  EntryTypes types = {};
  auto operator<=>(const Variant&) const = default;
  std::string name() const {  // "snapkv q4_0"
    return types == EntryTypes() || types == kOwnTypes ? method : method + " " + types.text();
  }
};

struct Condition {
  std::string method, budget;
  EntryTypes types = {};
  auto operator<=>(const Condition&) const = default;
  Variant variant() const { return {method, types}; }
  std::string label() const { return variant().name() + (budget.empty() ? "" : " " + budget); }
};

// A row of a table: a method with a budget.
struct SummaryRow {
  Condition condition;
  EntryTypes types = {};  // types of the stored entries
  Interval value;         // the measure over all tasks: the mean of the tasks' means
  // Besides the measure, where the answers have it; means are likewise those of the tasks' means:
  std::optional<double> nll;               // nats per token of the reference
  std::optional<double> keyword;           // share of the answers that have it
  std::optional<double> top1;              // fidelity, share of equal most likely tokens
  std::optional<double> perplexity_ratio;  // fidelity: against the full cache
  // NaN if every answer failed:
  double kept_share = 1;                  // entries kept of the prompt's, mean
  double bytes_kept = 0, bytes_full = 0;  // mean of a prompt
  double prompt_tokens = 0;               // mean
  double evict_ms = 0;                    // mean of a prompt
  std::optional<double> prefill_s;        // these three: only of answers that were computed alone
  std::optional<double> token_ms;
  std::optional<double> bytes_peak;
  int n_answers = 0, n_failed = 0, n_whole = 0, n_truncated = 0;
};

// The measure by task, length or group: a row for every row of the section.
struct Breakdown {
  std::string by;  // "task", "length", "group"
  std::vector<std::string> columns;
  std::vector<std::vector<Interval>> cells;  // [row][column]; n_samples is 0 where there are no answers
};

// Paired comparisons of row and column at one budget.
struct ComparisonTable {
  std::string budget;
  std::vector<Variant> variants;               // those of the section's rows at this budget
  std::vector<std::vector<Comparison>> cells;  // [row][column]; the diagonal is empty
};

// Mean score by depth and length.
struct NeedleMap {
  std::string task;
  Condition condition;
  std::vector<double> depths, lengths;                    // ascending
  std::vector<std::vector<std::optional<double>>> cells;  // [depth][length], in [0, 1]
};

// The unit by which tables and plots compare methods: the entries that they keep, or their bytes.
enum class KeptUnit { kEntries, kBytes };

// A benchmark in one question mode.
struct Section {
  std::string benchmark, question;
  Measure measure = Measure::kScore;
  int n_samples = 0;
  std::vector<Variant> variants;  // of all sections, in the runs' order
  // The full cache comes first; then the budgets from the largest to the smallest, each from the best method to the
  // worst.
  std::vector<SummaryRow> rows;
  std::vector<Breakdown> breakdowns;
  std::vector<ComparisonTable> comparisons;
  std::vector<NeedleMap> needle_maps;
  std::vector<std::string> warnings;                  // sentences
  std::vector<std::pair<std::string, int>> failures;  // an example of each kind, and how often it occurred

  std::string title() const { return benchmark + ", question-" + question; }
  // Returns a row's bytes as a share of the full cache's in f16, mean of a prompt. The full cache's are those of a row
  // in f16 if there is one, since answers of earlier versions count the full cache in the types that they store.
  double bytes_share(const SummaryRow& row) const;
};

Variant variant_of(const AnswerKey& key, const Results& results);

// Returns the variants that have answers, in the runs' order of methods.
std::vector<Variant> variants_of(const Results& results);

std::vector<Section> summarize(const Results& results);

// Returns "12.34 [10.02, 14.60]", in the measure's unit: 100 x score, nats.
std::string interval_text(const Interval& interval, Measure measure);
std::string value_text(double value, Measure measure);
std::string measure_name(Measure measure);          // "score", "KL, nats", "NLL, nats a token"
double shown_value(double value, Measure measure);  // 100 x score

}  // namespace winnow::eval
