#include "cli/bench_rows.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "winnow/instruction_set.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns llama-bench's keys in its order, then winnow's own.
Json row_json(const BenchRow& row) {
  std::vector<double> samples_ns(row.samples_ns.begin(), row.samples_ns.end());
  const std::vector<double> samples_ts = row.samples_ts();
  const MeanAndDeviation ns = mean_and_deviation(samples_ns), ts = mean_and_deviation(samples_ts);
  return {{"build_commit", kVersion},
          {"build_number", 0},
          {"cpu_info", instruction_set()},
          {"gpu_info", row.device_name},
          {"backends", row.backend()},
          {"model_filename", row.model_filename},
          {"model_type", row.model_type()},
          {"model_size", row.model.bytes},
          {"model_n_params", row.model.n_parameters},
          {"n_batch", row.n_batch},
          {"n_ubatch", row.n_batch},
          {"n_threads", row.n_threads},
          {"type_k", row.type_k},
          {"type_v", row.type_v},
          {"n_gpu_layers", row.device_layers},
          {"n_prompt", row.n_prompt},
          {"n_gen", row.n_gen},
          {"n_depth", row.n_depth},
          {"test_time", row.test_time},
          {"avg_ns", std::llround(ns.mean)},
          {"stddev_ns", std::llround(ns.deviation)},
          {"avg_ts", ts.mean},
          {"stddev_ts", ts.deviation},
          {"samples_ns", row.samples_ns},
          {"samples_ts", samples_ts},
          {"n_parallel", row.n_parallel},
          {"prefill_s", row.prefill_s},
          {"evict_s", row.evict_s},
          {"kv_method", row.method},
          {"kv_budget", row.budget},
          {"kv_entries_full", row.entries_full},
          {"kv_entries_kept", row.entries_kept},
          {"kv_bytes_kept", row.bytes_kept},
          {"kv_bytes_peak", row.bytes_peak},
          {"rss_peak_bytes", row.rss_peak_bytes}};
}

class JsonFormat : public BenchFormat {
 public:
  std::string row(const BenchRow& row) override {
    const std::string separator = first_ ? "[\n" : ",\n";
    first_ = false;
    return separator + row_json(row).dump(2, ' ', false, Json::error_handler_t::replace);
  }
  std::string end() override { return first_ ? "[]\n" : "\n]\n"; }

 private:
  bool first_ = true;
};

class CsvFormat : public BenchFormat {
 public:
  std::string row(const BenchRow& row) override {
    std::string header, values;
    const Json json = row_json(row);
    for (const auto& [key, value] : json.items()) {
      if (value.is_array()) continue;
      const bool first = values.empty();
      header += (first ? "" : ",") + key;
      values += (first ? "" : ",") + quoted(value.is_string() ? value.get<std::string>() : value.dump());
    }
    const std::string text = first_ ? header + "\n" + values + "\n" : values + "\n";
    first_ = false;
    return text;
  }

 private:
  static std::string quoted(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      quoted += c;
      if (c == '"') quoted += c;
    }
    return quoted + "\"";
  }
  bool first_ = true;
};

// Columns have fixed widths, because rows are shown as soon as they are measured; a longer cell only spoils the
// alignment.
class MarkdownFormat : public BenchFormat {
 public:
  std::string begin() override {
    std::string titles = "|", rule = "|";
    for (const Column& column : kColumns) {
      titles += " " + padded_cell(column.title, column.width, column.align) + " |";
      const std::string dashes(column.width - 1, '-');
      rule += " " + dashes + (column.align == Align::kRight ? ": |" : "- |");
    }
    return titles + "\n" + rule + "\n";
  }

  std::string row(const BenchRow& row) override {
    const MeanAndDeviation ts = mean_and_deviation(row.samples_ts());
    const std::string cells[] = {row.model_type(),
                                 bytes_text(row.model.bytes),
                                 short_count_text(static_cast<double>(row.model.n_parameters)),
                                 row.backend(),
                                 std::to_string(row.n_threads),
                                 row.type_k == row.type_v ? row.type_k : row.type_k + "/" + row.type_v,
                                 row.method,
                                 row.budget.empty() ? "-" : row.budget,
                                 row.test(),
                                 fixed_text(ts.mean, 2) + " ± " + fixed_text(ts.deviation, 2),
                                 row.evict_s > 0 ? fixed_text(100 * row.evict_s / row.prefill_s, 1) : "-",
                                 mebibytes_text(row.bytes_kept),
                                 mebibytes_text(row.bytes_peak),
                                 mebibytes_text(row.rss_peak_bytes)};
    static_assert(std::size(cells) == std::size(kColumns));
    std::string text = "|";
    for (std::size_t i = 0; i < std::size(kColumns); ++i) {
      text += " " + padded_cell(cells[i], kColumns[i].width, kColumns[i].align) + " |";
    }
    return text + "\n";
  }

 private:
  struct Column {
    const char* title;
    std::size_t width;
    Align align;
  };
  static constexpr Column kColumns[] = {
      {"model", 20, Align::kLeft},        {"size", 10, Align::kRight},         {"params", 7, Align::kRight},
      {"backend", 7, Align::kLeft},       {"threads", 7, Align::kRight},       {"type kv", 7, Align::kLeft},
      {"method", 16, Align::kLeft},       {"budget", 7, Align::kRight},        {"test", 16, Align::kRight},
      {"t/s", 19, Align::kRight},         {"evict %", 7, Align::kRight},       {"KV MiB", 8, Align::kRight},
      {"KV peak MiB", 11, Align::kRight}, {"RSS peak MiB", 12, Align::kRight},
  };
};

}  // namespace

std::vector<double> BenchRow::samples_ts() const {
  std::vector<double> rates;
  for (const std::int64_t ns : samples_ns) {
    rates.push_back(1e9 * (n_prompt + n_gen * n_parallel) / static_cast<double>(std::max<std::int64_t>(ns, 1)));
  }
  return rates;
}

std::string BenchRow::test() const {
  std::string name = n_prompt > 0 ? "pp" + std::to_string(n_prompt) : "tg" + std::to_string(n_gen);
  if (n_parallel > 1) name += " x" + std::to_string(n_parallel);
  if (n_depth > 0) name += " @ d" + std::to_string(n_depth);
  return name;
}

std::string BenchRow::model_type() const {
  std::string type = model.file_type;
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::toupper(c); });
  return model.architecture + " " + short_count_text(static_cast<double>(model.n_parameters)) + " " + type;
}

std::string BenchRow::backend() const { return device.starts_with("cuda") ? "CUDA" : device == "cpu" ? "CPU" : device; }

MeanAndDeviation mean_and_deviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0.0};
}

std::unique_ptr<BenchFormat> make_bench_format(const std::string& name) {
  if (name == "md") return std::make_unique<MarkdownFormat>();
  if (name == "json") return std::make_unique<JsonFormat>();
  if (name == "csv") return std::make_unique<CsvFormat>();
  throw UsageError("-o takes md, json or csv, not '" + name + "'");
}

}  // namespace winnow::cli
