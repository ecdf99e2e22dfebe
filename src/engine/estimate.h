// What a request will take at most, on one of the machines that share its model's layers.
#pragma once

#include <cstdint>

#include "engine/engine_impl.h"

namespace winnow {

struct RangeEstimate {
  MemoryEstimate memory;
  // Through how many layers its first prompt goes before the rows behind do (forward.h). In a pipeline all of the
  // range, so that the next rank waits least; within a limit as many as half of it has room for, and one at least. One
  // where a method keeps queries of every row: for these there is room for one layer.
  int n_together = 1;
};

// Of the machine that holds these layers; options: checked. Throws what Engine::estimate throws.
RangeEstimate estimate_of(const Engine::Impl& engine, const LayerRange& layers, const SessionOptions& options,
                          std::int32_t n_prompt, std::int32_t n_decode);

}  // namespace winnow
