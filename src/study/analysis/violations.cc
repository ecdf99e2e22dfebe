#include "study/analysis/analysis.h"

namespace winnow {
namespace {

// The kernels compute norms and attention in float32.
constexpr double kRelative = 1e-5, kAbsolute = 1e-9;

bool is_above(double loss, double bound) { return !(loss <= bound * (1 + kRelative) + kAbsolute); }

}  // namespace

std::vector<std::string> find_violations(const Analysis& analysis) {
  std::vector<std::string> found;
  for (const CutOutcome& cut : analysis.cuts) {
    for (std::size_t l = 0; l < cut.layers.size(); ++l) {
      const LayerLosses& losses = cut.layers[l].losses;
      const auto check = [&](double loss, double bound, const std::string& name, const std::string& where) {
        if (!is_above(loss, bound)) return;
        found.push_back(cut.method + " at " + cut.budget + ", layer " + std::to_string(l) + where + ": the loss " +
                        std::to_string(loss) + " is above " + name + ", " + std::to_string(bound));
      };
      check(losses.loss_layer, losses.ada_eps, "Ada-KV's eps", "");
      check(losses.loss_layer, losses.lava_bound, "LAVa's bound", "");
      for (std::size_t h = 0; h < losses.loss_head.size(); ++h) {
        const std::string where = ", query head " + std::to_string(h);
        check(losses.loss_head[h], losses.theta[h], "CriticalKV's theta", where);
        if (!losses.theta_hat.empty()) {
          check(losses.loss_head[h], losses.theta_hat[h], "CriticalKV's theta-hat", where);
          check(losses.theta[h], losses.theta_hat[h], "CriticalKV's theta-hat (of theta)", where);
        }
      }
    }
  }
  return found;
}

}  // namespace winnow
