// Model architectures: the properties that all layers of one have in common, and the metadata that it alone reads.
// Adding one takes a file in architectures/ and a line in the table of architecture.cc
// (docs/internals/add-an-architecture.md).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/layer_spec.h"

namespace winnow {

class Metadata;

// The rule that says which layers have a sliding window if the file does not list them, and how those differ.
struct SlidingRule {
  bool is_ignored = false;  // true: no layer has a sliding window, whatever the file says
  std::int32_t window = 0;  // window in tokens if the file gives none; 0: no layer has a sliding window then
  int period = 0;           // the last layer of every so many has full attention; 0: every layer has a sliding window
  float rope_base = 0;      // RoPE base of sliding layers if the file gives none; 0: that of the other layers
  bool is_rope_scaled = true;  // false: RoPE's scaling does not apply to sliding layers
};

// An architecture.
struct Architecture {
  std::string_view name;    // general.architecture in the file
  std::string_view models;  // models that use it, for people
  int rope_mode;            // GGML_ROPE_TYPE_NORMAL or _NEOX
  LayerSpec layer = {};     // template of every layer; dimensions, RoPE and windows come from the file
  SlidingRule sliding = {};
  RecurrenceKind recurrence = RecurrenceKind::kNone;  // kind of the layers that have no attention
  bool has_latent_attention = false;                  // key_length_mla and value_length_mla are the sizes of heads
  bool has_rope_sections = false;  // the file divides RoPE's dimensions for images, which has no effect on text
  // Reads the metadata that only this architecture has. May be null. Throws Error(kBadFile, kUnsupported).
  void (*configure)(const Metadata& metadata, ModelSpec& spec) = nullptr;
};

// Returns all architectures, in the order of the documentation.
std::span<const Architecture* const> architectures();

// Returns the architecture of a name. Throws Error(kUnsupported) with the list of names for any other.
const Architecture& find_architecture(std::string_view name);

}  // namespace winnow
