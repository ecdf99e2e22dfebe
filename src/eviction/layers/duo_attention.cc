// duo-attention: retrieval heads whole, the others sinks and recency. DuoAttention, arXiv 2410.10819.
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
