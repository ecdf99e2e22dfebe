// The report of `winnow report` as files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct ReportOptions {
  int n_answers = 20;   // samples of a task whose answers can be browsed
  std::string against;  // Variant::name with which all others are compared; empty: none
  KeptUnit by = KeptUnit::kEntries;
};

struct ReportFile {
  std::string path;  // relative to the report's folder
  std::string content;
};

// Returns report.html (self-contained), report.md, results.csv and figures/*.svg. Throws Error(kNotFound) if `against`
// was not run.
std::vector<ReportFile> make_report(const Results& results, const ReportOptions& options = {});

// Returns the JSON that the page's browser of answers reads.
std::string answers_json(const Results& results, int n_answers);

}  // namespace winnow::eval
