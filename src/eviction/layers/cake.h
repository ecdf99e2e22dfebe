// CAKE's two statistics of a layer's window attention.
#pragma once

#include "winnow/layer_evidence.h"

namespace winnow {

struct CakePreference {
  double dispersion = 0;
  double shift = 0;
};

CakePreference cake_preference(LayerEvidence& evidence, const EvictionOptions& options);

}  // namespace winnow
