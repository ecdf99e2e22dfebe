// winnow_model_table prints the table of docs/models.md, measured on the tests' models of random weights.
#include <cmath>
#include <cstdio>
#include <exception>

#include "engine/architecture_run.h"
#include "model/architecture.h"

namespace {

// Returns the power of ten above the difference, which rounding on another processor changes seldom, and then by one.
std::string bound(double difference) {
  const int exponent = difference > 0 ? static_cast<int>(std::ceil(std::log10(difference))) : -9;
  return "1e" + std::to_string(exponent);
}

std::string models_of(const std::string& variant) {
  for (const winnow::Architecture* architecture : winnow::architectures()) {
    if (variant == architecture->name) return std::string(architecture->models);
  }
  return "";
}

}  // namespace

int main() {
  try {
    std::puts("| architecture | models | layers of the tested model | prefill | decode |\n|---|---|---|---|---|");
    for (const winnow::test::ArchitectureVariant& variant : winnow::test::architecture_variants()) {
      const winnow::test::ArchitectureResult result = winnow::test::compare_with_libllama(variant);
      std::printf("| `%s`%s | %s | %s | %s | %s |\n", variant.options.architecture.c_str(),
                  variant.name.substr(variant.options.architecture.size()).c_str(), models_of(variant.name).c_str(),
                  result.layers.c_str(), bound(result.prefill).c_str(), bound(result.decode).c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
