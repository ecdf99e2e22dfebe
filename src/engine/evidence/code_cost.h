// Measures on the prompt at hand what a KV head's attention loses when its keys and values become codes, before the
// head is cut, so that a head that would lose too much can be stored in more bits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/entries/code_feedback.h"
#include "winnow/entry_type.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// The cost of codes in one KV head.
struct CodeCost {
  double keys = 0;    // KL of attention over exact keys to attention over coded keys, nats
  double values = 0;  // squared errors of coded values over squared values, weighted by attention

  // Heads that codes do not harm stay far below: of the heads of SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B the
  // worst loses .033 nats and .037 of its values in r3, .010 and .011 in r4. Two heads of the last model lose over 20
  // nats without an origin, which breaks the model's answers.
  static constexpr double kMostKeys = 0.1;
  static constexpr double kMostValues = 0.1;
  bool is_too_much() const { return keys > kMostKeys || values > kMostValues; }
};

// Returns the cost of each KV head of a layer, measured with every eighth reference row over the first entries and a
// sample of up to 256 others. Zeros where there are no reference rows.
//   feedback: [n_kv_head] the feedback that keys would be coded with, null for plain rounding; empty: null for all
//   heads
std::vector<CodeCost> code_costs(const LayerView& view, EntryType key_type, EntryType value_type,
                                 std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                                 const ParallelFor& parallel_for);

// Returns whether a session's first prompt reports what its codes cost (SessionStatistics::code_loss): where nothing is
// evicted. Where something is, heads that lose too much are stored in more bits.
bool measures_codes(const SessionOptions& options);

// Adds the costs of a layer's heads to the loss.
void add_code_costs(CodeLoss& loss, int layer, std::span<const CodeCost> costs);
// Adds the loss of other layers.
void add_code_loss(CodeLoss& loss, const CodeLoss& other);

}  // namespace winnow
