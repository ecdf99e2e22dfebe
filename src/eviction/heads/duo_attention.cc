// duo-attention: retrieval heads whole, the others sinks and recency. DuoAttention, arXiv 2410.10819.
// Under another layer allocator: the heads of a layer share its budget by the table's weights.
#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"
#include "eviction/tables/head_importance_table.h"

namespace winnow {
namespace {

class DuoAttentionHeads final : public HeadAllocator {
 public:
  std::vector<Option> options() const override { return duo_attention_options(); }
  const HeadTable* table() const override { return &duo_attention_table(); }

  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    return water_fill(request.weights, head_caps(request.ranking), request.budget);
  }
};

}  // namespace

const HeadAllocator& duo_attention_heads() {
  static const DuoAttentionHeads instance;
  return instance;
}

}  // namespace winnow
