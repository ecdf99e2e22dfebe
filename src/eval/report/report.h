// The report of `winnow report` as files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct ReportOptions {
  int n_answers = 20;   // samples of a task whose answers can be browsed
  std::string against;  // Variant::name that all others are set against; empty: none
  KeptUnit by = KeptUnit::kEntries;
};

struct ReportFile {
  std::string path;  // relative to the report's folder
  std::string content;
};

// report.html (self-contained), report.md, results.csv and figures/*.svg. Throws Error(kNotFound) for an `against` that
// was not run.
std::vector<ReportFile> make_report(const Results& results, const ReportOptions& options = {});

// The data that the page's browser of answers reads: JSON.
std::string answers_json(const Results& results, int n_answers);

}  // namespace winnow::eval
