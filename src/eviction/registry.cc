#include "eviction/registry.h"

#include <span>
#include <string>

#include "base/nearest_name.h"
#include "winnow/error.h"

namespace winnow {
namespace {

template <typename Part>
struct Entry {
  std::string_view name;
  const Part& (*instance)();
};

constexpr Entry<Scorer> kScorers[] = {
    {"streaming-llm", streaming_llm_scorer},
    {"h2o", h2o_scorer},
    {"tova", tova_scorer},
    {"snapkv", snapkv_scorer},
    {"cake", cake_scorer},
    {"vatp", vatp_scorer},
    {"lava", lava_scorer},
    {"knorm", knorm_scorer},
    {"keydiff", keydiff_scorer},
    {"expected-attention", expected_attention_scorer},
    {"kvzip", kvzip_scorer},
    {"rms", rms_scorer},
    {"combined", combined_scorer},
    {"random", random_scorer},
};

constexpr Entry<LayerAllocator> kLayerAllocators[] = {
    {"uniform", uniform_layers},
    {"pyramid", pyramid_layers},
    {"cake", cake_layers},
    {"lava", lava_layers},
    {"global", global_layers},
    {"headkv", headkv_layers},
    {"duo-attention", duo_attention_layers},
    {"lu-kv", lu_kv_layers},
};

constexpr Entry<HeadAllocator> kHeadAllocators[] = {
    {"uniform", uniform_heads}, {"ada", ada_heads},       {"flat", flat_heads},
    {"global", global_heads},   {"headkv", headkv_heads}, {"duo-attention", duo_attention_heads},
    {"lu-kv", lu_kv_heads},
};

constexpr Entry<Selector> kSelectors[] = {
    {"top-k", top_k_selector},
    {"critical", critical_selector},
};

template <typename Part>
std::vector<std::string_view> names_of(std::span<const Entry<Part>> table) {
  std::vector<std::string_view> names;
  for (const Entry<Part>& entry : table) names.push_back(entry.name);
  return names;
}

template <typename Part>
const Part& find(std::span<const Entry<Part>> table, const char* kind, std::string_view name) {
  for (const Entry<Part>& entry : table) {
    if (entry.name == name) return entry.instance();
  }
  const std::vector<std::string_view> names = names_of(table);
  throw Error(ErrorCode::kNotFound,
              "there is no " + std::string(kind) + " '" + std::string(name) + "': " + name_advice(name, names));
}

}  // namespace

const HeadTable* Parts::joint_table() const { return layers->table() == heads->table() ? heads->table() : nullptr; }

const Scorer& find_scorer(std::string_view name) { return find<Scorer>(kScorers, "scorer", name); }
const LayerAllocator& find_layer_allocator(std::string_view name) {
  return find<LayerAllocator>(kLayerAllocators, "layer allocator", name);
}
const HeadAllocator& find_head_allocator(std::string_view name) {
  return find<HeadAllocator>(kHeadAllocators, "head allocator", name);
}
const Selector& find_selector(std::string_view name) { return find<Selector>(kSelectors, "selector", name); }

Parts find_parts(const EvictionOptions& options) {
  return {.scorer = &find_scorer(options.scorer),
          .layers = &find_layer_allocator(options.layers),
          .heads = &find_head_allocator(options.heads),
          .selector = &find_selector(options.selector)};
}

std::vector<std::string_view> scorer_names() { return names_of<Scorer>(kScorers); }

}  // namespace winnow
