#include "eviction/headkv_table.h"

#include <numeric>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

class HeadKvTable final : public HeadTable {
 public:
  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    if (options.importance == nullptr) {
      EvictionOptions loaded = options;
      loaded.load_files();
      return weights_of(*loaded.importance, shape, options.head_beta);
    }
    return weights_of(*options.importance, shape, options.head_beta);
  }

 private:
  // In units of B.
  static std::vector<double> weights_of(const HeadImportance& importance, const CutShape& shape, double beta) {
    if (importance.n_layer != shape.n_layer || importance.n_head < 1 || importance.n_head % shape.n_kv_head != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the head-importance file is for " + std::to_string(importance.n_layer) + " layers of " +
                      std::to_string(importance.n_head) + " heads, the model has " + std::to_string(shape.n_layer) +
                      " of " + std::to_string(shape.n_kv_head) + " KV heads: name the file of this model");
    }
    const int n_group = importance.n_head / shape.n_kv_head;
    const double total = std::accumulate(importance.weight.begin(), importance.weight.end(), 0.0);
    const std::size_t n_heads = std::size_t(shape.n_layer) * shape.n_kv_head;
    std::vector<double> weights(n_heads);
    for (std::size_t i = 0; i < n_heads; ++i) {
      double sum = 0;
      for (int g = 0; g < n_group; ++g) sum += importance.weight[i * n_group + g];
      weights[i] = (1.0 - 1.0 / beta) + static_cast<double>(n_heads) / beta * sum / total;
    }
    return weights;
  }
};

}  // namespace

const HeadTable& headkv_table() {
  static const HeadKvTable instance;
  return instance;
}

}  // namespace winnow
