// Observation windows that fit into the budget, so that one method serves long prompts and short ones.
#pragma once

#include "eviction/cut/cut.h"

namespace winnow {

// Returns the options with a window that a cut of this shape can hold. If sinks and window in every head are more than
// the budget, the window becomes half of what the sinks leave of an average head's budget, but no shorter than the
// scorer needs. Options with a profile stay as they are, since a profile is for one window.
EvictionOptions with_fitting_window(EvictionOptions options, const CutShape& shape);

}  // namespace winnow
