// Options whose window fits into a budget, so that one method serves long prompts and short ones.
#pragma once

#include "eviction/cut/cut.h"

namespace winnow {

// The options with a window that a cut of this shape holds: where sinks and window in every head are more than the
// budget, half of what the sinks leave of it in a head on average, at least what the scorer needs. A profile is for one
// window: with one the options stay as they are.
EvictionOptions with_fitting_window(EvictionOptions options, const CutShape& shape);

}  // namespace winnow
