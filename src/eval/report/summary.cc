#include "eval/report/summary.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/numbers.h"

namespace winnow::eval {
namespace {

using Members = std::vector<const Result*>;

constexpr std::size_t kMostColumns = 40;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Measure measure_of(const std::string& benchmark) {
  switch (protocol_of(benchmark)) {
    case Protocol::kFidelity:
    case Protocol::kAnswerFidelity:
      return Measure::kDivergence;
    case Protocol::kPerplexity:
      return Measure::kNll;
    case Protocol::kAnswer:
      break;
  }
  return Measure::kScore;
}

std::optional<double> value_of(const Answer& answer, Measure measure) {
  if (!answer.error.empty()) return std::nullopt;
  switch (measure) {
    case Measure::kScore:
      return answer.score;
    case Measure::kDivergence:
      return answer.fidelity ? std::optional(answer.fidelity->kl) : std::nullopt;
    case Measure::kNll:
      break;
  }
  return answer.nll;
}

// The turns of one context, and all prompts of one book, are one cluster.
std::string cluster_of(const Result& result) {
  if (!result.sample->cluster.empty()) return result.sample->cluster;
  return result.sample->turns.size() > 1 ? result.answer.key.task + "/" + result.answer.key.id : "";
}

Interval interval_of(const Members& members, Measure measure) {
  std::vector<Observation> observations;
  for (const Result* result : members) {
    if (const auto value = value_of(result->answer, measure)) {
      observations.push_back({*value, cluster_of(*result), result->answer.key.task});
    }
  }
  return bootstrap_mean(observations, {.is_share = measure == Measure::kScore});
}

// Returns the mean of the tasks' means, as for the measure; nullopt if no answer has the value.
std::optional<double> mean_of(const Members& members, const std::function<std::optional<double>(const Answer&)>& get) {
  std::map<std::string, std::pair<double, int>> tasks;
  for (const Result* result : members) {
    if (!result->answer.error.empty()) continue;
    if (const std::optional<double> value = get(result->answer)) {
      auto& [sum, n] = tasks[result->answer.key.task];
      sum += *value;
      ++n;
    }
  }
  double sum_of_means = 0;
  for (const auto& [task, values] : tasks) sum_of_means += values.first / values.second;
  return tasks.empty() ? std::nullopt : std::optional(sum_of_means / static_cast<double>(tasks.size()));
}

SummaryRow summarize_row(const Condition& condition, const Members& members, Measure measure) {
  SummaryRow row{.condition = condition, .value = interval_of(members, measure)};
  const auto answered = std::ranges::find_if(members, [](const Result* m) { return m->answer.error.empty(); });
  row.types = (answered != members.end() ? *answered : members.front())->answer.key.types;
  const auto mean = [&](auto get) {
    return mean_of(members, [&](const Answer& answer) -> std::optional<double> { return get(answer); });
  };
  using Value = std::optional<double>;
  row.nll = mean([](const Answer& a) { return a.nll; });
  row.keyword = mean([](const Answer& a) -> Value { return a.has_keyword ? Value(*a.has_keyword ? 1 : 0) : Value(); });
  row.top1 = mean([](const Answer& a) -> Value { return a.fidelity ? Value(a.fidelity->top1) : Value(); });
  row.perplexity_ratio = mean(
      [](const Answer& a) -> Value { return a.fidelity && a.nll ? Value(*a.nll - a.fidelity->full_nll) : Value(); });
  if (row.perplexity_ratio) row.perplexity_ratio = std::exp(*row.perplexity_ratio);
  const auto number = [&](auto get) { return mean([&](const Answer& a) -> Value { return get(a); }).value_or(kNaN); };
  row.kept_share = number([](const Answer& a) {
    return a.entries_full > 0 ? static_cast<double>(a.entries_kept) / static_cast<double>(a.entries_full) : 1.0;
  });
  row.bytes_kept = number([](const Answer& a) { return static_cast<double>(a.bytes_kept); });
  row.bytes_full = number([](const Answer& a) { return static_cast<double>(a.bytes_full); });
  row.prompt_tokens = number([](const Answer& a) { return static_cast<double>(a.prompt_tokens); });
  row.evict_ms = number([](const Answer& a) { return 1000 * a.evict_s; });
  row.prefill_s = mean([](const Answer& a) { return a.n_together == 1 ? Value(a.prefill_s) : Value(); });
  row.token_ms = mean([](const Answer& a) {
    // The last token is not fed.
    return a.n_together == 1 && a.answer_tokens > 1 ? Value(1000 * a.decode_s / (a.answer_tokens - 1)) : Value();
  });
  row.bytes_peak =
      mean([](const Answer& a) { return a.bytes_peak ? Value(static_cast<double>(*a.bytes_peak)) : Value(); });
  for (const Result* result : members) {
    const Answer& answer = result->answer;
    ++row.n_answers;
    row.n_failed += !answer.error.empty();
    row.n_whole += answer.is_whole;
    row.n_truncated += answer.is_truncated;
  }
  return row;
}

// Returns the measure by column, with columns sorted by name, or by size if they are numbers; nullopt if there is no
// use in the columns.
std::optional<Breakdown> break_down(const std::string& by, const std::vector<Members>& rows, Measure measure,
                                    const std::function<std::string(const Result&)>& column_of, bool is_number) {
  std::vector<std::string> columns;
  std::set<std::string> known;
  std::size_t n_samples = 0;  // samples of the row that has most
  for (const Members& members : rows) {
    n_samples = std::max(n_samples, members.size());
    for (const Result* result : members) {
      const std::string column = column_of(*result);
      if (!column.empty() && known.insert(column).second) columns.push_back(column);
    }
  }
  // Lengths make no columns if nearly every sample has one of its own.
  if (columns.size() < 2 || columns.size() > kMostColumns || (is_number && 2 * columns.size() > n_samples))
    return std::nullopt;
  if (is_number) {
    std::sort(columns.begin(), columns.end(),
              [](const std::string& a, const std::string& b) { return std::stod(a) < std::stod(b); });
  } else {
    std::sort(columns.begin(), columns.end());
  }
  Breakdown breakdown{.by = by, .columns = columns};
  for (const Members& members : rows) {
    std::map<std::string, Members> parts;
    for (const Result* result : members) parts[column_of(*result)].push_back(result);
    std::vector<Interval>& cells = breakdown.cells.emplace_back();
    for (const std::string& column : columns) cells.push_back(interval_of(parts[column], measure));
  }
  return breakdown;
}

using TurnKey = std::tuple<std::string, std::string, int>;

std::vector<Pair> pairs_of(const Members& a, const Members& b, Measure measure) {
  std::map<TurnKey, const Result*> partners;
  for (const Result* result : b) {
    const AnswerKey& key = result->answer.key;
    partners[{key.task, key.id, key.turn}] = result;
  }
  std::vector<Pair> pairs;
  for (const Result* result : a) {
    const AnswerKey& key = result->answer.key;
    const auto partner = partners.find({key.task, key.id, key.turn});
    if (partner == partners.end()) continue;
    const auto own = value_of(result->answer, measure), other = value_of(partner->second->answer, measure);
    if (own && other) pairs.push_back({*own, *other, cluster_of(*result), key.task});
  }
  return pairs;
}

ComparisonTable compare_methods(const std::string& budget, const std::vector<Variant>& variants,
                                const std::map<Condition, Members>& conditions, Measure measure) {
  ComparisonTable table{.budget = budget, .variants = variants};
  for (const Variant& row : variants) {
    std::vector<Comparison>& cells = table.cells.emplace_back();
    for (const Variant& column : variants) {
      if (row == column) {
        cells.emplace_back();
        continue;
      }
      const auto members_of = [&](const Variant& variant) -> const Members& {
        const auto found = conditions.find({variant.method, budget, variant.types});
        return found != conditions.end() ? found->second : conditions.at({variant.method, "", variant.types});
      };
      const std::vector<Pair> pairs = pairs_of(members_of(row), members_of(column), measure);
      cells.push_back(measure == Measure::kDivergence ? compare_ratios(pairs) : compare_differences(pairs));
    }
  }
  return table;
}

std::vector<NeedleMap> needle_maps(const Condition& condition, const Members& members) {
  struct Task {
    std::set<double> depths, lengths;  // of failed samples, too, so that the maps of all methods have the same cells
    std::map<std::pair<double, double>, std::pair<double, int>> cells;
  };
  std::map<std::string, Task> tasks;
  for (const Result* result : members) {
    const auto& coordinates = result->sample->coordinates;
    const auto depth = coordinates.find("depth"), length = coordinates.find("length");
    if (depth == coordinates.end() || length == coordinates.end()) continue;
    Task& task = tasks[result->answer.key.task];
    task.depths.insert(depth->second);
    task.lengths.insert(length->second);
    if (!result->answer.error.empty() || !result->answer.score) continue;
    auto& [sum, n] = task.cells[{depth->second, length->second}];
    sum += *result->answer.score;
    ++n;
  }
  std::vector<NeedleMap> maps;
  for (const auto& [name, task] : tasks) {
    if (task.depths.size() < 2) continue;
    NeedleMap map{
        name, condition, {task.depths.begin(), task.depths.end()}, {task.lengths.begin(), task.lengths.end()}, {}};
    for (const double depth : map.depths) {
      auto& row = map.cells.emplace_back();
      for (const double length : map.lengths) {
        const auto found = task.cells.find({depth, length});
        row.push_back(found == task.cells.end() ? std::nullopt
                                                : std::optional(found->second.first / found->second.second));
      }
    }
    maps.push_back(std::move(map));
  }
  return maps;
}

std::string without_numbers(const std::string& text) {
  std::string rest;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) rest += c;
  }
  return rest;
}

void add_warnings(Section& section, const std::vector<Members>& rows) {
  std::map<std::string, std::set<std::string>> samples, clusters;  // by task
  std::map<std::string, std::pair<std::string, int>> failures;     // by reason without numbers: an example, its count
  for (const Members& members : rows) {
    for (const Result* result : members) {
      const Answer& answer = result->answer;
      if (!answer.error.empty()) {
        auto& [reason, n] = failures[without_numbers(answer.error)];
        if (++n == 1) reason = answer.error;
      }
      const std::string id = answer.key.id + "/" + std::to_string(answer.key.turn);
      const std::string cluster = cluster_of(*result);
      samples[answer.key.task].insert(id);
      clusters[answer.key.task].insert(cluster.empty() ? id : cluster);
    }
  }
  for (const auto& [task, ids] : samples) {
    section.n_samples += static_cast<int>(ids.size());
    const std::string warning =
        small_sample_warning(static_cast<int>(ids.size()), static_cast<int>(clusters[task].size()));
    if (!warning.empty()) section.warnings.push_back(task + ": " + warning + ".");
  }
  std::map<std::pair<std::string, int>, std::vector<const SummaryRow*>> whole;  // by budget and number of prompts
  for (const SummaryRow& row : section.rows) {
    if (row.n_whole > 0) whole[{row.condition.budget, row.n_whole}].push_back(&row);
  }
  for (const auto& [key, members] : whole) {
    std::string methods;
    for (const SummaryRow* row : members) methods += (methods.empty() ? "" : ", ") + row->condition.variant().name();
    section.warnings.push_back("Budget " + key.first + ": " + std::to_string(key.second) + " of " +
                               std::to_string(members[0]->n_answers) + " prompts fit in it and were kept whole (" +
                               methods + ").");
  }
  if (!section.rows.empty() && section.rows[0].n_truncated > 0) {
    section.warnings.push_back(std::to_string(section.rows[0].n_truncated) + " of " +
                               std::to_string(section.rows[0].n_answers) +
                               " prompts were longer than the context: their middle was left out.");
  }
  for (const auto& [kind, failure] : failures) section.failures.push_back(failure);
}

}  // namespace

// Sorts rows from the largest budget to the smallest, by what they keep, and at each from the best method to the worst;
// failed ones come last. The order of the runs decides between equals.
void sort_rows(Section& section) {
  std::map<std::string, std::pair<double, int>> kept;
  for (const SummaryRow& row : section.rows) {
    if (std::isnan(row.kept_share)) continue;
    auto& [sum, n] = kept[row.condition.budget];
    sum += row.kept_share;
    ++n;
  }
  const auto kept_by = [&](const SummaryRow& row) {
    if (row.condition.budget.empty()) return std::numeric_limits<double>::infinity();
    const auto found = kept.find(row.condition.budget);
    return found == kept.end() ? -1 : found->second.first / found->second.second;
  };
  const auto loss = [&](const SummaryRow& row) {
    if (std::isnan(row.value.mean)) return std::numeric_limits<double>::infinity();
    return section.measure == Measure::kScore ? -row.value.mean : row.value.mean;
  };
  std::stable_sort(section.rows.begin(), section.rows.end(), [&](const SummaryRow& a, const SummaryRow& b) {
    const double kept_a = kept_by(a), kept_b = kept_by(b);
    if (kept_a != kept_b) return kept_a > kept_b;
    // Two budgets may keep the same number of entries.
    if (a.condition.budget != b.condition.budget) return a.condition.budget < b.condition.budget;
    return loss(a) < loss(b);
  });
}

double Section::bytes_share(const SummaryRow& row) const {
  const auto in_f16 = std::find_if(rows.begin(), rows.end(),
                                   [](const SummaryRow& other) { return other.condition.types == EntryTypes(); });
  return row.bytes_kept / (in_f16 != rows.end() ? in_f16->bytes_full : row.bytes_full);
}

Variant variant_of(const AnswerKey& key, const Results& results) {
  const bool has_own = !key.budget.empty() && results.methods_with_own_types.contains(key.method);
  return {key.method, has_own ? kOwnTypes : key.types};
}

std::vector<Variant> variants_of(const Results& results) {
  std::set<Variant> known;
  for (const Result& result : results.results) known.insert(variant_of(result.answer.key, results));
  std::vector<Variant> variants;
  for (const std::string& method : results.methods) {
    // The default types come first.
    if (known.contains({method})) variants.push_back({method});
    for (const Variant& variant : known) {
      if (variant.method == method && variant.types != EntryTypes()) variants.push_back(variant);
    }
  }
  return variants;
}

std::vector<Section> summarize(const Results& results) {
  std::map<std::pair<std::string, std::string>, std::map<Condition, Members>> parts;
  for (const Result& result : results.results) {
    const AnswerKey& key = result.answer.key;
    const EntryTypes types = variant_of(key, results).types;
    parts[{key.benchmark, key.question}][{key.method, key.budget, types}].push_back(&result);
  }
  const std::vector<Variant> variants = variants_of(results);
  std::vector<std::string> budgets = results.budgets;
  budgets.insert(budgets.begin(), "");
  std::vector<Section> sections;
  for (const auto& [name, conditions] : parts) {
    Section section{.benchmark = name.first, .question = name.second, .measure = measure_of(name.first)};
    section.variants = variants;
    for (const Variant& variant : variants) {
      for (const std::string& budget : budgets) {
        const auto found = conditions.find({variant.method, budget, variant.types});
        if (found == conditions.end()) continue;
        section.rows.push_back(summarize_row(found->first, found->second, section.measure));
      }
    }
    sort_rows(section);
    std::vector<Members> rows;
    std::vector<std::string> budgets_in_order;
    for (const SummaryRow& row : section.rows) {
      rows.push_back(conditions.at(row.condition));
      const std::string& budget = row.condition.budget;
      if (!budget.empty() && (budgets_in_order.empty() || budgets_in_order.back() != budget)) {
        budgets_in_order.push_back(budget);
      }
      if (section.measure != Measure::kScore) continue;
      for (NeedleMap& map : needle_maps(row.condition, rows.back())) section.needle_maps.push_back(std::move(map));
    }
    const auto add = [&](const std::string& by, const std::function<std::string(const Result&)>& column_of,
                         bool is_number) {
      if (auto breakdown = break_down(by, rows, section.measure, column_of, is_number)) {
        section.breakdowns.push_back(std::move(*breakdown));
      }
    };
    add(
        "task", [](const Result& result) { return result.answer.key.task; }, false);
    add(
        "group", [](const Result& result) { return result.sample->group; }, false);
    add(
        "length",
        [](const Result& result) {
          const auto found = result.sample->coordinates.find("length");
          return found == result.sample->coordinates.end() ? "" : format_number(found->second);
        },
        true);
    for (const std::string& budget : budgets_in_order) {
      std::vector<Variant> compared;
      for (const SummaryRow& row : section.rows) {
        const Condition& condition = row.condition;
        // The reference has no divergence from itself.
        const bool is_full = condition.budget.empty() && (section.measure != Measure::kDivergence ||
                                                          condition.types != reference_types(condition.types));
        if (is_full || condition.budget == budget) compared.push_back(condition.variant());
      }
      if (compared.size() > 1)
        section.comparisons.push_back(compare_methods(budget, compared, conditions, section.measure));
    }
    add_warnings(section, rows);
    sections.push_back(std::move(section));
  }
  return sections;
}

double shown_value(double value, Measure measure) { return measure == Measure::kScore ? 100 * value : value; }

std::string value_text(double value, Measure measure) {
  if (std::isnan(value)) return "-";
  char text[32];
  const char* const format = measure == Measure::kScore ? "%.2f" : measure == Measure::kNll ? "%.3f" : "%.4f";
  std::snprintf(text, sizeof text, format, shown_value(value, measure));
  return text;
}

std::string interval_text(const Interval& interval, Measure measure) {
  if (interval.n_samples == 0) return "-";
  const std::string mean = value_text(interval.mean, measure);
  if (!interval.has_bounds()) return mean;
  return mean + " [" + value_text(interval.low, measure) + ", " + value_text(interval.high, measure) + "]";
}

std::string measure_name(Measure measure) {
  switch (measure) {
    case Measure::kScore:
      return "score";
    case Measure::kDivergence:
      return "KL, nats";
    case Measure::kNll:
      break;
  }
  return "NLL, nats a token";
}

}  // namespace winnow::eval
