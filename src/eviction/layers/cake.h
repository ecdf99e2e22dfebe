// CAKE's two statistics of a layer's window attention (ICLR 2025; formulas in layers/cake.cc).
#pragma once

#include "winnow/layer_evidence.h"

namespace winnow {

// The factors of a layer's preference score.
struct CakePreference {
  double dispersion = 0;  // Disp, in nats
  double shift = 0;       // Shift
};

// Returns the statistics of a layer over its observation window.
CakePreference cake_preference(LayerEvidence& evidence, const EvictionOptions& options);

}  // namespace winnow
