// Chooses the scorer that a profile is made for.
#pragma once

#include <string_view>

#include "winnow/eviction.h"

namespace winnow {

// Returns "SCORER[:option=value,...]" as a method that allots by a profile: of two presets with that scorer the lu-kv
// one, so "snapkv" is lu-kv-snapkv. Any other method's name stands for its scorer. Throws what EvictionOptions::parse
// throws.
EvictionOptions choose_scorer(std::string_view text);

}  // namespace winnow
