// A model architecture: what all of its layers have in common, and what it reads from a file beyond what every
// architecture does. Adding one is one file in architectures/ and one line in the table of architecture.cc
// (docs/add-an-architecture.md).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/layer_spec.h"

namespace winnow {

class Metadata;

// Which layers have a sliding window where the file does not list them, and how those differ.
struct SlidingRule {
  bool is_ignored = false;  // whatever the file says, no layer slides
  std::int32_t window = 0;  // where the file gives none; 0: then no layer slides
  int period = 0;           // the last layer of every so many sees all; 0: every layer slides
  float rope_base = 0;      // of sliding layers, where the file gives none; 0: that of the others
  bool is_rope_scaled = true;
};

struct Architecture {
  std::string_view name;    // general.architecture in the file
  std::string_view models;  // who uses it, for people
  int rope_mode;            // GGML_ROPE_TYPE_NORMAL or _NEOX
  LayerSpec layer = {};     // of every layer; dimensions, RoPE and windows come from the file
  SlidingRule sliding = {};
  RecurrenceKind recurrence = RecurrenceKind::kNone;  // of the layers that have no attention
  bool has_latent_attention = false;                  // key_length_mla and value_length_mla are the sizes of heads
  bool has_rope_sections = false;  // the file divides RoPE's dimensions for images; in a text they turn as without
  // Reads what only this architecture has. May be null. Throws Error(kBadFile, kUnsupported).
  void (*configure)(const Metadata& metadata, ModelSpec& spec) = nullptr;
};

// In the order of the documentation.
std::span<const Architecture* const> architectures();

// Throws Error(kUnsupported) with the list of names.
const Architecture& find_architecture(std::string_view name);

}  // namespace winnow
