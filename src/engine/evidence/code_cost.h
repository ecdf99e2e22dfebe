// What a KV head's attention loses by its keys and values becoming codes: measured on the prompt at hand, before the
// head is cut, so that a head that would lose too much can be stored in more bits. No model's name decides.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/entries/code_feedback.h"
#include "winnow/entry_type.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

struct CodeCost {
  double keys = 0;    // KL of attention over keys as they are to attention over coded keys, nats
  double values = 0;  // squared errors of coded values over the values' squares, weighted by attention

  // Where codes do no harm a head is far below: of the heads of SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B the
  // worst loses .033 nats and .037 of its values in r3, .010 and .011 in r4; without an origin two heads of the last
  // one lose over 20 nats, and the model its sense.
  static constexpr double kMostKeys = 0.1;
  static constexpr double kMostValues = 0.1;
  bool is_too_much() const { return keys > kMostKeys || values > kMostValues; }
};

// Of every KV head of a layer, for the reference rows' attention (each eighth of these) over the first entries and some
// 256 others, which stand for all. Zeros where there are no reference rows.
//   feedback: [n_kv_head] with which keys would be coded, null for number by number; empty: for all of them
std::vector<CodeCost> code_costs(const LayerView& view, EntryType key_type, EntryType value_type,
                                 std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                                 const ParallelFor& parallel_for);

// Whether a session's first prompt tells what its codes cost (SessionStatistics::code_loss): where nothing is evicted.
// Where something is, heads that lose too much are stored in more bits.
bool measures_codes(const SessionOptions& options);

// Adds the costs of a layer's heads.
void add_code_costs(CodeLoss& loss, int layer, std::span<const CodeCost> costs);
// Adds those of other layers.
void add_code_loss(CodeLoss& loss, const CodeLoss& other);

}  // namespace winnow
