// A layer's evidence for a scorer in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"

namespace winnow::python {

// The evidence that a scorer said it reads, by the names of Evidence's attributes.
struct Needed {
  bool window_queries = false, query_moments = false, all_queries = false, log_sum_exp = false;
  bool reference_queries = false, output_projection = false;
  unsigned window_columns = 0;  // WindowColumn bits

  // Throws Error(kInvalidArgument) with the list of names for a name that is not among them.
  void add(const std::string& name);
  EvidenceNeeds needs(const EvictionOptions& options) const;
};

// A layer's evidence as a Python object. It may outlive the call of the scorer; reading it is then an error. Arrays are
// copies, which cost little compared with the computation behind them, so they stay valid for whoever keeps one.
struct Evidence {
  std::string scorer;
  Needed needed;
  LayerEvidence* layer = nullptr;  // null after the call
  const EvictionOptions* options = nullptr;
};

}  // namespace winnow::python
