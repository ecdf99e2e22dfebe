// duo-attention: retrieval heads are kept whole, the others keep sinks and window only.
// DuoAttention, arXiv 2410.10819:
//   share_h = N minus the protected entries for the most important heads, one after the other, until the total is
//   spent; 0 for the rest (tables/head_importance_table.h)
#include "eviction/options/registry.h"
#include "eviction/tables/head_importance_table.h"

namespace winnow {
namespace {

class DuoAttentionLayers final : public LayerAllocator {
 public:
  std::vector<Option> options() const override { return duo_attention_options(); }
  const HeadTable* table() const override { return &duo_attention_table(); }
};

}  // namespace

const LayerAllocator& duo_attention_layers() {
  static const DuoAttentionLayers instance;
  return instance;
}

}  // namespace winnow
