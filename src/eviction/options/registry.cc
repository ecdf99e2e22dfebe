#include "eviction/options/registry.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "base/nearest_name.h"
#include "eviction/options/option_table.h"
#include "winnow/error.h"
#include "winnow/registry.h"

namespace winnow {
namespace {

template <typename Part>
struct BuiltIn {
  const char* name;
  const Part& (*instance)();
};

constexpr BuiltIn<Scorer> kScorers[] = {
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
    {"kvzip+", kvzip_plus_scorer},
    {"rms", rms_scorer},
    {"combined", combined_scorer},
    {"random", random_scorer},
};

constexpr BuiltIn<LayerAllocator> kLayerAllocators[] = {
    {"uniform", uniform_layers},
    {"pyramid", pyramid_layers},
    {"cake", cake_layers},
    {"lava", lava_layers},
    {"global", global_layers},
    {"headkv", headkv_layers},
    {"duo-attention", duo_attention_layers},
    {"lu-kv", lu_kv_layers},
};

constexpr BuiltIn<HeadAllocator> kHeadAllocators[] = {
    {"uniform", uniform_heads}, {"ada", ada_heads},       {"flat", flat_heads},
    {"global", global_heads},   {"headkv", headkv_heads}, {"duo-attention", duo_attention_heads},
    {"lu-kv", lu_kv_heads},
};

constexpr BuiltIn<Selector> kSelectors[] = {
    {"top-k", top_k_selector},
    {"critical", critical_selector},
};

// The parts of one kind.
template <typename Part>
class PartTable {
 public:
  // prefix: text before a part's name in the list of an option's readers
  PartTable(const char* kind, const char* prefix, std::span<const BuiltIn<Part>> built_in)
      : kind_(kind), prefix_(prefix) {
    for (const BuiltIn<Part>& part : built_in) add(part.name, part.instance());
  }

  void add(const std::string& name, std::unique_ptr<const Part> part) {
    if (part == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "the " + std::string(kind_) + " to register is null: give one");
    }
    check_name(kind_, name);
    if (find_entry(name) != nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a " + std::string(kind_) + " '" + name + "' already exists: choose another name");
    }
    add(name, *part);
    owned_.push_back(std::move(part));
  }

  const Part& find(std::string_view name) const { return *entry(name).part; }
  const std::vector<std::string>& options(std::string_view name) const { return entry(name).options; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }

 private:
  struct Entry {
    std::string name;
    const Part* part;
    std::vector<std::string> options;  // names of the options that it declares
  };

  void add(const std::string& name, const Part& part) {
    Entry entry{.name = name, .part = &part, .options = {}};
    const std::vector<Option> options = part.options();
    for (const Option& option : options) check_option(option, prefix_ + name);
    for (const Option& option : options) {
      declare_option(option, prefix_ + name);
      entry.options.push_back(option.name);
    }
    entries_.push_back(std::move(entry));
  }

  const Entry* find_entry(std::string_view name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
    return found != entries_.end() ? &*found : nullptr;
  }

  const Entry& entry(std::string_view name) const {
    if (const Entry* entry = find_entry(name)) return *entry;
    std::vector<std::string_view> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    throw Error(ErrorCode::kNotFound, "there is no " + std::string(kind_) + " '" + std::string(name.substr(0, 64)) +
                                          "': " + name_advice(name, names));
  }

  const char* kind_;
  std::string prefix_;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<const Part>> owned_;
};

PartTable<Scorer>& scorers() {
  static PartTable<Scorer> table("scorer", "", kScorers);
  return table;
}

PartTable<LayerAllocator>& layer_allocators() {
  static PartTable<LayerAllocator> table("layer allocator", "layers=", kLayerAllocators);
  return table;
}

PartTable<HeadAllocator>& head_allocators() {
  static PartTable<HeadAllocator> table("head allocator", "heads=", kHeadAllocators);
  return table;
}

PartTable<Selector>& selectors() {
  static PartTable<Selector> table("selector", "selector=", kSelectors);
  return table;
}

}  // namespace

void check_name(std::string_view kind, std::string_view name) {
  const bool is_word = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+';
  });
  if (is_word) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the " + std::string(kind) + " name '" + std::string(name.substr(0, 64)) +
                  "' is not valid: use 1 to 64 lower-case letters, digits, hyphens and plus signs");
}

void register_built_in_parts() {
  scorers();
  layer_allocators();
  head_allocators();
  selectors();
}

void register_scorer(const std::string& name, std::unique_ptr<const Scorer> scorer) {
  register_built_in_parts();
  scorers().add(name, std::move(scorer));
}

void register_layer_allocator(const std::string& name, std::unique_ptr<const LayerAllocator> allocator) {
  register_built_in_parts();
  layer_allocators().add(name, std::move(allocator));
}

void register_head_allocator(const std::string& name, std::unique_ptr<const HeadAllocator> allocator) {
  register_built_in_parts();
  head_allocators().add(name, std::move(allocator));
}

void register_selector(const std::string& name, std::unique_ptr<const Selector> selector) {
  register_built_in_parts();
  selectors().add(name, std::move(selector));
}

int Scorer::least_window(const EvictionOptions& options) const {
  constexpr unsigned kRows = kWindowMean | kWindowM2 | kWindowMax;
  return (needs(options).window_columns & kRows) != 0 ? 1 : 0;
}

const HeadTable* Parts::joint_table() const { return layers->table() == heads->table() ? heads->table() : nullptr; }

const Scorer& find_scorer(std::string_view name) { return scorers().find(name); }
const LayerAllocator& find_layer_allocator(std::string_view name) { return layer_allocators().find(name); }
const HeadAllocator& find_head_allocator(std::string_view name) { return head_allocators().find(name); }
const Selector& find_selector(std::string_view name) { return selectors().find(name); }

std::vector<std::string> scorer_options(std::string_view scorer) { return scorers().options(scorer); }

std::vector<std::string> options_of_parts(const EvictionOptions& options) {
  std::vector<std::string> names = scorers().options(options.scorer);
  for (const std::vector<std::string>* more :
       {&layer_allocators().options(options.layers), &head_allocators().options(options.heads),
        &selectors().options(options.selector)}) {
    names.insert(names.end(), more->begin(), more->end());
  }
  return names;
}

Parts find_parts(const EvictionOptions& options) {
  return {.scorer = &find_scorer(options.scorer),
          .layers = &find_layer_allocator(options.layers),
          .heads = &find_head_allocator(options.heads),
          .selector = &find_selector(options.selector)};
}

std::vector<std::string> scorer_names() { return scorers().names(); }

}  // namespace winnow
