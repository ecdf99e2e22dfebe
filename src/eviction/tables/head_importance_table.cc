#include "eviction/tables/head_importance_table.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the importance of each KV head: [heads of all layers that are cut] the sum over its group's query heads,
// scaled to sum to 1 over the model.
std::vector<double> importance_of(const CutShape& shape, const EvictionOptions& options) {
  EvictionOptions loaded;
  const HeadImportance* importance = options.importance.get();
  if (importance == nullptr) {
    loaded = options;
    loaded.load_files();
    importance = loaded.importance.get();
  }
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument,
                "the head-importance file is for " + what + ": name the file of this model");
  };
  if (std::ssize(importance->weight) != shape.n_layer()) {
    refuse(std::to_string(importance->weight.size()) + " layers, but the model has " + std::to_string(shape.n_layer()));
  }
  std::vector<double> weights;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const std::vector<double>& layer = importance->weight[l];
    const int n_kv_head = shape.heads[l];
    if (n_kv_head == 0) continue;
    if (layer.empty() || layer.size() % n_kv_head != 0) {
      refuse(std::to_string(layer.size()) + " heads in layer " + std::to_string(l) + ", but the model has " +
             std::to_string(n_kv_head) + " KV heads there");
    }
    const auto n_group = static_cast<std::ptrdiff_t>(layer.size() / n_kv_head);
    for (auto first = layer.begin(); first != layer.end(); first += n_group) {
      weights.push_back(std::accumulate(first, first + n_group, 0.0));
    }
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

class HeadKvTable final : public HeadTable {
 public:
  // Returns weights in units of B.
  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    std::vector<double> weights = importance_of(shape, options);
    const double beta = options.number("head-beta");
    const auto n_heads = static_cast<double>(weights.size());
    for (double& weight : weights) weight = (1.0 - 1.0 / beta) + n_heads / beta * weight;
    return weights;
  }
};

class DuoAttentionTable final : public HeadTable {
 public:
  // Returns weights in entries. The last head that gets any may get only some.
  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    const std::vector<double> importance = importance_of(shape, options);
    std::vector<std::size_t> order(importance.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return importance[a] > importance[b]; });
    const std::int64_t is_protected =
        std::min<std::int64_t>(shape.n_tokens, std::int64_t{options.window} + options.sinks);
    const std::int64_t whole = shape.n_tokens - is_protected;
    std::int64_t left = std::max<std::int64_t>(0, shape.total - is_protected * std::ssize(importance));
    std::vector<double> weights(importance.size(), 0.0);
    for (const std::size_t head : order) {
      const std::int64_t share = std::min(left, whole);
      weights[head] = static_cast<double>(share);
      left -= share;
    }
    return weights;
  }
};

}  // namespace

const HeadTable& headkv_table() {
  static const HeadKvTable instance;
  return instance;
}

const HeadTable& duo_attention_table() {
  static const DuoAttentionTable instance;
  return instance;
}

std::vector<Option> duo_attention_options() {
  return {file_option("head-file", "head importances, JSON or a line for each layer")};
}

std::vector<Option> headkv_options() {
  std::vector<Option> options = duo_attention_options();
  options.push_back(
      number_option("head-beta", 1, kMaxNumberOption, 1.01, "1/head-beta of the total goes by importance"));
  return options;
}

}  // namespace winnow
