// random: uniform noise, the control that every quality table needs. It has no paper.
//   score_i = hash(seed, layer, head, position) in [0, 1), a multiple of 2^-24
// A score depends on these four numbers alone: it is the same with any number of threads, and a token keeps it when the
// cache is cut again.
#include "base/numbers.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Random final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
  std::vector<Option> options() const override {
    const auto read = [](std::string_view text) -> std::optional<std::string> {
      const std::optional<std::uint64_t> seed = parse_integer<std::uint64_t>(text);
      return seed ? std::optional(std::to_string(*seed)) : std::nullopt;
    };
    return {{.name = "seed", .values = "integer >= 0", .summary = "seed of the noise", .fallback = "0", .read = read}};
  }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const std::uint64_t seed = parse_integer<std::uint64_t>(options.text_of("seed")).value_or(0);
    LayerScores scores(evidence.n_kv_head());
    evidence.for_each_head([&](int h) {
      const std::vector<std::int32_t> positions = evidence.positions(h);
      const std::uint64_t layer = mix(seed) ^ static_cast<std::uint64_t>(evidence.layer().layer);
      const std::uint64_t head = mix(layer) ^ static_cast<std::uint64_t>(h);
      for (int i = 0; i < evidence.n_prefix(h); ++i) {
        const std::uint64_t bits = mix(mix(head) ^ static_cast<std::uint64_t>(positions[i]));
        scores[h].push_back(static_cast<float>(bits >> 40) * 0x1p-24F);
      }
    });
    return scores;
  }

 private:
  // Returns splitmix64's output in state x.
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
};

}  // namespace

const Scorer& random_scorer() {
  static const Random instance;
  return instance;
}

}  // namespace winnow
