// duo-attention: retrieval heads are kept whole, the others keep sinks and window only.
// DuoAttention, arXiv 2410.10819:
//   share_h = N minus the protected entries for the most important heads, one after the other, until the total is
//   spent; 0 for the rest (tables/head_importance_table.h)
// Under another layer allocator the heads of a layer share its budget by these numbers.
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
