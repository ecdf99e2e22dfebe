// One instance of every benchmark. The table is in benchmarks.cc.
#pragma once

#include "eval/sample.h"

namespace winnow::eval {

const Benchmark& longbench();
const Benchmark& longbench_e();
const Benchmark& ruler();
const Benchmark& niah();
const Benchmark& needlebench();
const Benchmark& infinitebench();
const Benchmark& scbench();
const Benchmark& perplexity();
const Benchmark& fidelity();

}  // namespace winnow::eval
