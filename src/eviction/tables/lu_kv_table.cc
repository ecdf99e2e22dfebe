#include "eviction/tables/lu_kv_table.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

std::string text_of(const std::vector<int>& heads) {
  return std::to_string(heads.size()) + " layers with " +
         std::to_string(std::accumulate(heads.begin(), heads.end(), 0)) + " KV heads that are cut";
}

class LuKvTable final : public HeadTable {
 public:
  bool counts_protected() const override { return true; }

  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    if (options.utility_profile != nullptr) return weights_of(*options.utility_profile, shape);
    EvictionOptions loaded = options;
    loaded.load_files();
    if (loaded.utility_profile == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "lu-kv needs a calibrated profile: name it with profile=FILE");
    }
    loaded.validate();
    return weights_of(*loaded.utility_profile, shape);
  }

 private:
  // Returns weights in units of N.
  static std::vector<double> weights_of(const UtilityProfile& profile, const CutShape& shape) {
    if (profile.heads != shape.heads) {
      throw Error(ErrorCode::kInvalidArgument, "the profile is for " + text_of(profile.heads) + ", but the model has " +
                                                   text_of(shape.heads) + ": calibrate this model");
    }
    const auto n_heads = static_cast<std::size_t>(shape.n_heads());
    const double ratio = std::min(
        1.0, static_cast<double>(shape.total) / (static_cast<double>(shape.n_tokens) * static_cast<double>(n_heads)));
    const std::size_t n_ratio = profile.ratios.size();
    const auto above = static_cast<std::size_t>(std::lower_bound(profile.ratios.begin(), profile.ratios.end(), ratio) -
                                                profile.ratios.begin());
    const double low = above == 0 ? 0.0 : profile.ratios[above - 1];
    const double high = above == n_ratio ? 1.0 : profile.ratios[above];
    const double part = high > low ? (ratio - low) / (high - low) : 1.0;
    std::vector<double> weights(n_heads);
    for (std::size_t i = 0; i < n_heads; ++i) {
      const double low_kept = above == 0 ? 0.0 : profile.kept[(above - 1) * n_heads + i];
      const double high_kept = above == n_ratio ? 1.0 : profile.kept[above * n_heads + i];
      weights[i] = low_kept + part * (high_kept - low_kept);
    }
    return weights;
  }
};

}  // namespace

const HeadTable& lu_kv_table() {
  static const LuKvTable instance;
  return instance;
}

std::vector<Option> lu_kv_options() { return {file_option("profile", "JSON of a calibrated profile")}; }

}  // namespace winnow
