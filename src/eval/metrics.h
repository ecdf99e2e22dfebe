// The metrics of the benchmarks, as their own code computes them. A metric is one row of the table in metrics.cc.
#pragma once

#include <span>
#include <string_view>

#include "eval/python_str.h"
#include "eval/sample.h"

namespace winnow::eval {

struct Metric {
  std::string_view name;
  std::string_view summary;
  double (*score)(const Turn& turn, TextView answer);  // in [0, 1]
  bool chinese_words = false;                          // splits Chinese text, see set_jieba
};

std::span<const Metric> metrics();
// Throws Error(kInternal): names of metrics come from our own tables.
const Metric& find_metric(std::string_view name);

}  // namespace winnow::eval
