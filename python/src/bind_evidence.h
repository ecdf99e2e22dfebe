// A layer's evidence for a scorer in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"

namespace winnow::python {

// What a scorer said that it reads: the names of Evidence's attributes.
struct Needed {
  bool window_queries = false, query_moments = false, all_queries = false, log_sum_exp = false;
  bool reference_queries = false, output_projection = false;
  unsigned window_columns = 0;  // WindowColumn bits

  // Throws Error(kInvalidArgument) with the list for a name that is none.
  void add(const std::string& name);
  EvidenceNeeds needs(const EvictionOptions& options) const;
};

// Lives in Python, and may outlive the call of the scorer: what it is asked then is an error. Arrays are copies, which
// cost little beside what they are computed from, so that whoever keeps one has it.
struct Evidence {
  std::string scorer;
  Needed needed;
  LayerEvidence* layer = nullptr;  // null behind the call
  const EvictionOptions* options = nullptr;
};

}  // namespace winnow::python
