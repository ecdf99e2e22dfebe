// cake: a layer's share is in proportion to its preference score, in cascade.
// Qin et al., "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences" (ICLR 2025):
//   share_l = P_l / sum P, P_l = Disp_l^(1/tau1) * Shift_l^(1/tau2)
//   Disp  = -sum A ln A over window rows x prefix columns, summed over query heads
//   Shift = sum over columns of the variance over the rows, w - 1 in the denominator, summed over query heads
#include "eviction/layers/cake.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "eviction/options/registry.h"

namespace winnow {
namespace {

class CakeLayers final : public LayerAllocator {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    return {.window_rows = options.window, .window_columns = kWindowMean | kWindowM2 | kWindowEntropy};
  }
  std::vector<Option> options() const override {
    constexpr double kMinTau = 0.1;  // a preference to a power above ten overflows
    return {number_option("tau1", kMinTau, kMaxNumberOption, 1.0, "exponent 1/tau1 of the dispersion"),
            number_option("tau2", kMinTau, kMaxNumberOption, 1.0, "exponent 1/tau2 of the shift")};
  }
  int least_window(const EvictionOptions&) const override { return 2; }
  bool is_measured() const override { return true; }

  double measure(LayerEvidence& evidence, const LayerScores&, const EvictionOptions& options) const override {
    const CakePreference preference = cake_preference(evidence, options);
    return std::pow(preference.dispersion, 1.0 / options.number("tau1")) *
           std::pow(preference.shift, 1.0 / options.number("tau2"));
  }
};

}  // namespace

CakePreference cake_preference(LayerEvidence& evidence, const EvictionOptions& options) {
  const WindowStatistics& window = evidence.window(options.window);
  std::vector<CakePreference> of_heads(static_cast<std::size_t>(evidence.n_kv_head()));
  evidence.for_each_head([&](int h) {
    CakePreference sums;
    for (const double entropy : window.entropy[h]) sums.dispersion += entropy;
    for (const float m2 : window.m2[h]) sums.shift += static_cast<double>(m2);
    of_heads[static_cast<std::size_t>(h)] = sums;
  });
  CakePreference preference;
  for (const CakePreference& of_head : of_heads) {
    preference.dispersion += of_head.dispersion;
    preference.shift += of_head.shift;
  }
  preference.dispersion = std::max(preference.dispersion, 0.0);
  preference.shift = window.n_rows > 1 ? preference.shift / (window.n_rows - 1) : 0.0;
  return preference;
}

const LayerAllocator& cake_layers() {
  static const CakeLayers instance;
  return instance;
}

}  // namespace winnow
