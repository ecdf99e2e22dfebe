// ada: a head gets as many entries as it has among the layer's best scores, with a safeguard for heads of flat
// attention.
// Feng et al., "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation", arXiv 2407.11550, Algorithm 1.
// With count_h the head's candidates among the layer's `budget` best:
//   blend:   share_h = (1 - alpha) * count_h + alpha * budget / n_kv_head (line 8 as the authors' code computes it)
//   minimum: every head's best floor(alpha * budget / n_kv_head) go in first, then the flat ranking
#include <algorithm>
#include <cmath>

#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Ada final : public HeadAllocator {
 public:
  std::vector<Option> options() const override {
    return {choice_option("safeguard", {"blend", "minimum"}, "blend", "how flat heads are protected"),
            number_option("alpha", 0, 1, 0.2, "strength of the safeguard")};
  }

  std::vector<double> shares(const HeadRequest& request, const EvictionOptions& options) const override {
    if (options.text_of("safeguard") == "minimum") {
      const std::vector<std::int64_t> counts = with_minimum(request, options);
      return {counts.begin(), counts.end()};
    }
    const std::vector<std::int64_t> counts = request.ranking.flat_counts(request.budget);
    const double alpha = options.number("alpha");
    std::vector<double> blend;
    for (const std::int64_t count : counts) {
      blend.push_back((1.0 - alpha) * static_cast<double>(count) + alpha * average(request));
    }
    return water_fill(blend, head_caps(request.ranking), request.budget);
  }

  // A smaller budget can raise a head's count under `minimum` (others' minima shrink), but never above its flat count
  // or its own minimum under the larger one.
  std::vector<std::int64_t> ceilings(const HeadRequest& request, const EvictionOptions& options) const override {
    if (options.text_of("safeguard") != "minimum") return HeadAllocator::ceilings(request, options);
    std::vector<std::int64_t> counts = request.ranking.flat_counts(request.budget);
    const std::vector<std::int64_t> caps = head_caps(request.ranking);
    for (std::size_t h = 0; h < counts.size(); ++h) {
      counts[h] = std::max(counts[h], std::min(minimum(request, options), caps[h]));
    }
    return counts;
  }

 private:
  static double average(const HeadRequest& request) {
    return static_cast<double>(request.budget) / request.ranking.n_kv_head();
  }

  static std::int64_t minimum(const HeadRequest& request, const EvictionOptions& options) {
    return static_cast<std::int64_t>(std::floor(options.number("alpha") * average(request) + kShareTolerance));
  }

  static std::vector<std::int64_t> with_minimum(const HeadRequest& request, const EvictionOptions& options) {
    std::vector<std::int64_t> counts = head_caps(request.ranking);
    std::int64_t left = request.budget;
    for (std::int64_t& count : counts) {
      count = std::min(count, minimum(request, options));
      left -= count;
    }
    const std::vector<std::int64_t> forced = counts;
    std::vector<std::int64_t> passed(counts.size(), 0);
    for (const std::uint16_t h : request.ranking.flat_order(request.budget)) {
      if (left == 0) break;
      if (++passed[h] <= forced[h]) continue;
      ++counts[h];
      --left;
    }
    return counts;
  }
};

}  // namespace

const HeadAllocator& ada_heads() {
  static const Ada instance;
  return instance;
}

}  // namespace winnow
