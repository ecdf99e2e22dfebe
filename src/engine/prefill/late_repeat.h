// The rows of a late repeat (reconstruction.h) do not see all of a layer. This is what they see of each, and what the
// prompt's own rows, shown as a repeat's, see of the layers before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/staging_buffer.h"
#include "engine/forward.h"
#include "winnow/layer_view.h"

namespace winnow {

class QueryEvidence;
class ReferenceAttention;

// Returns the entries of a layer that the rows of a late repeat see wherever the tokens are that they repeat: of every
// head the eighth that the view's reference rows attend to most, and the first and last ones. [n_kv_head], ascending.
std::vector<std::vector<std::int32_t>> entries_seen_everywhere(const LayerView& view, const ParallelFor& parallel_for);
// Return these with those near a part: what its rows see, [n_kv_head]. The first puts those last that are only near the
// part, since a layer's parts have the others in common; the second returns all in ascending order.
std::vector<std::vector<std::int32_t>> entries_seen_near_last(std::span<const std::vector<std::int32_t>> everywhere,
                                                              const RepeatedPart& part);
std::vector<std::vector<std::int32_t>> entries_seen(std::span<const std::vector<std::int32_t>> everywhere,
                                                    const RepeatedPart& part);
// Returns how many entries of a prompt of n_tokens the rows of a part see at most: all of a short one.
std::int32_t most_entries_seen(const LateRepeat& repeat, std::int32_t n_tokens);

// Makes of a layer's own rows of a prompt, q [n_tokens][n_head][key_dim] and their log-sum-exps [n_tokens][n_head],
// those of a repeat, for the tokens of a part: each sees the view's entries from a position after the prompt, and what
// it saw when the prompt was read.
void replay_rows(const LayerView& view, const RepeatedPart& part, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for);

// The late repeat's part of the layers of one prompt, one after the other. All that it is made of must outlive it.
class LateRepeatLayers {
 public:
  // pass, staging: the prompt's and the repeat's rows, n_tokens of each, and their entries.
  // evidence: has the reference rows by which the entries are chosen that all parts see; null: they see all entries.
  // reference: also records the attention of these rows; may be null.
  LateRepeatLayers(Engine::Impl& engine, StagingBuffer& staging, ForwardPass& pass, const LateRepeat& repeat,
                   std::int32_t n_tokens, QueryEvidence* evidence, ReferenceAttention* reference);

  // Shows a part's rows what they see of a layer, before they go through it.
  void begin_part(int layer, const RepeatedPart& part);
  // Makes a repeat of the prompt's own rows in a layer before the late repeat, once they have passed it.
  void replay(int layer);
  // Returns the seconds that this has taken so far.
  double seconds() const { return seconds_; }

 private:
  // Chooses the entries of a layer that the rows of all parts see.
  void choose_seen(int layer);
  // Shows a part's rows these entries and those near the part.
  void show_seen(const RepeatedPart& part);

  Engine::Impl& engine_;
  StagingBuffer& staging_;
  ForwardPass& pass_;
  const std::int32_t n_tokens_;
  QueryEvidence* const evidence_;
  ReferenceAttention* const reference_;
  std::vector<std::vector<std::int32_t>> seen_;  // [n_kv_head]; empty: they see everything
  double seconds_ = 0;
};

}  // namespace winnow
