#include <algorithm>

#include "base/nearest_name.h"
#include "eval/benchmarks/all.h"
#include "winnow/error.h"

namespace winnow::eval {

const std::vector<const Benchmark*>& benchmarks() {
  static const std::vector<const Benchmark*> all = {&niah(),        &fidelity(),      &perplexity(),
                                                    &ruler(),       &longbench(),     &longbench_e(),
                                                    &needlebench(), &infinitebench(), &scbench()};
  return all;
}

std::string_view samples_of(std::string_view name) {
  return name.starts_with(kFidelityOf) ? name.substr(kFidelityOf.size()) : name;
}

const Benchmark& find_benchmark(std::string_view name) {
  name = samples_of(name);
  std::vector<std::string_view> names;
  for (const Benchmark* benchmark : benchmarks()) {
    if (benchmark->name() == name) return *benchmark;
    names.push_back(benchmark->name());
  }
  throw Error(ErrorCode::kNotFound, "unknown benchmark '" + std::string(name) + "': " + name_advice(name, names));
}

}  // namespace winnow::eval
