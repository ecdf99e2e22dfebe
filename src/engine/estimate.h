// The most memory that a request will take on one of the machines that share its model's layers.
#pragma once

#include <cstdint>

#include "engine/engine_impl.h"

namespace winnow {

// The estimate for the layers of one machine.
struct RangeEstimate {
  MemoryEstimate memory;
  // The number of layers that the first prompt's rows go through before the next rows begin (forward.h). In a pipeline
  // all of the range, so that the next rank waits least; within a memory limit as many as half of it has room for, at
  // least one. One where a method keeps the queries of every row, which have room for one layer.
  int n_together = 1;
};

// Returns the estimate for the machine that holds these layers. options: checked. Throws what Engine::estimate throws.
RangeEstimate estimate_of(const Engine::Impl& engine, const LayerRange& layers, const SessionOptions& options,
                          std::int32_t n_prompt, std::int32_t n_decode);

}  // namespace winnow
