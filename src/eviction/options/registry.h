// The table of parts, from names to implementations. A new built-in method touches its own file, registry.h and
// registry.cc (a line each) and, if it gets a preset, presets.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "winnow/head_allocator.h"
#include "winnow/layer_allocator.h"
#include "winnow/scorer.h"
#include "winnow/selector.h"

namespace winnow {

// The built-in parts, each defined in the file of its name.
const Scorer& streaming_llm_scorer();
const Scorer& h2o_scorer();
const Scorer& tova_scorer();
const Scorer& snapkv_scorer();
const Scorer& cake_scorer();
const Scorer& vatp_scorer();
const Scorer& lava_scorer();
const Scorer& knorm_scorer();
const Scorer& keydiff_scorer();
const Scorer& expected_attention_scorer();
const Scorer& kvzip_scorer();
const Scorer& kvzip_plus_scorer();
const Scorer& rms_scorer();
const Scorer& combined_scorer();
const Scorer& random_scorer();

const LayerAllocator& uniform_layers();
const LayerAllocator& pyramid_layers();
const LayerAllocator& cake_layers();
const LayerAllocator& lava_layers();
const LayerAllocator& global_layers();
const LayerAllocator& headkv_layers();
const LayerAllocator& duo_attention_layers();
const LayerAllocator& lu_kv_layers();

const HeadAllocator& uniform_heads();
const HeadAllocator& ada_heads();
const HeadAllocator& flat_heads();
const HeadAllocator& global_heads();
const HeadAllocator& headkv_heads();
const HeadAllocator& duo_attention_heads();
const HeadAllocator& lu_kv_heads();

const Selector& top_k_selector();
const Selector& critical_selector();

// Throws Error(kInvalidArgument) for a name that a part or preset cannot have. `kind` is the kind of thing that is
// named, for the message.
void check_name(std::string_view kind, std::string_view name);

// Adds the parts above to the table. Must be called before parts are looked up or registered.
void register_built_in_parts();

// The four parts that a method's options name.
struct Parts {
  const Scorer* scorer;
  const LayerAllocator* layers;
  const HeadAllocator* heads;
  const Selector* selector;

  // Returns the table of weights if both allocators read the same one, else null. Shares are then taken over all heads
  // of the model at once.
  const HeadTable* joint_table() const;
};

// Return the part of a name, or all four. Throw Error(kNotFound) with the nearest name for any other.
const Scorer& find_scorer(std::string_view name);
const LayerAllocator& find_layer_allocator(std::string_view name);
const HeadAllocator& find_head_allocator(std::string_view name);
const Selector& find_selector(std::string_view name);
Parts find_parts(const EvictionOptions& options);

// Return the names of the options that a scorer, or all four parts, declare.
std::vector<std::string> scorer_options(std::string_view scorer);
std::vector<std::string> options_of_parts(const EvictionOptions& options);

// Returns the shortest observation window with which these parts can score and measure.
int least_window(const EvictionOptions& options);

// Returns the names of all scorers.
std::vector<std::string> scorer_names();

}  // namespace winnow
