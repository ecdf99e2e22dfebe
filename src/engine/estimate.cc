#include "engine/estimate.h"

#include <algorithm>
#include <utility>

#include "cache/staging_buffer.h"
#include "engine/engine_impl.h"
#include "engine/evidence/key_feedback.h"
#include "engine/evidence/reference_attention.h"
#include "engine/prefill/first_cut.h"
#include "engine/prefill/reconstruction.h"
#include "engine/session_options.h"
#include "eviction/cut/fitting_window.h"
#include "winnow/error.h"

namespace winnow {
namespace {

std::size_t pages_of(std::int64_t n_entries) {
  return static_cast<std::size_t>((n_entries + kPageEntries - 1) / kPageEntries);
}

// The bytes of the pages that hold entries in one machine's layers. Every head's last page may hold a single entry.
// How a cut shares entries among layers is not known in advance: all that it keeps may be in these layers, as far as
// their heads hold it. Layers differ in size, so each is counted as the largest, up to what its heads hold.
class PageBytes {
 public:
  PageBytes(const CacheShape& shape, int n_threads) : plain_(shape.plain()), n_threads_(n_threads) {}

  // Returns those of the layers that methods cut, stored as `types` says: n_entries in all heads, of n_tokens tokens.
  // n_later entries more come afterwards. These are stored in plain pages until the pages are full, and so are a head's
  // first ones.
  std::size_t cut(const CacheShape& types, std::int64_t n_entries, std::int64_t n_later, std::int64_t n_tokens) const {
    if (!types.has_codes()) return entries(types, n_entries + n_later, n_tokens);
    // The first and the last page of each head, and pages that are being coded while they are still held plain.
    const std::size_t turning =
        2 * of_heads(plain_, 1) + static_cast<std::size_t>(n_threads_) * (largest_page(types) + largest_page(plain_));
    const std::int64_t n_heads = plain_.n_cut_heads();
    return entries(types, n_entries, n_tokens) + in_more_bits(types, n_entries) + turning +
           (n_later > n_heads ? entries(plain_, n_later, n_later / n_heads + 1) : 0);
  }

  // Returns those of the layers with windows after n_tokens tokens, the last n_new of which are fed together. A
  // window's first entry may be anywhere on its page.
  std::size_t windows(std::int64_t n_tokens, std::int64_t n_new) const {
    std::size_t bytes = 0;
    for (int l = 0; l < plain_.n_layer(); ++l) {
      const LayerShape& layer = plain_.layer(l);
      if (layer.sliding_window == 0 || layer.n_kv_head == 0) continue;
      const std::int64_t n = std::min(n_tokens, layer.sliding_window + n_new) + kPageEntries - 1;
      bytes += static_cast<std::size_t>(layer.n_kv_head) * pages_of(n) * plain_.page_bytes(l);
    }
    return bytes;
  }

 private:
  static std::size_t largest_page(const CacheShape& types) {
    std::size_t largest = 0;
    for (int l = 0; l < types.n_layer(); ++l) {
      if (types.layer(l).is_evictable()) largest = std::max(largest, types.page_bytes(l));
    }
    return largest;
  }

  // Returns the bytes of n_pages pages in every head that is cut.
  static std::size_t of_heads(const CacheShape& types, std::size_t n_pages) {
    std::size_t bytes = 0;
    for (int l = 0; l < types.n_layer(); ++l) {
      if (const int n = types.layer(l).n_evictable_heads()) bytes += static_cast<std::size_t>(n) * types.page_bytes(l);
    }
    return bytes * n_pages;
  }

  // Returns the bytes of n entries, no more than n_in_head of them in any head.
  static std::size_t entries(const CacheShape& types, std::int64_t n, std::int64_t n_in_head) {
    const std::int64_t n_pages = (n + types.n_cut_heads() * (kPageEntries - 1)) / kPageEntries;
    return std::min(static_cast<std::size_t>(n_pages) * largest_page(types), of_heads(types, pages_of(n_in_head)));
  }

  // Returns what n_entries entries take in addition because a part of them is stored in more bits. That of a head is
  // rounded up to a page while layers are cut one after the other.
  static std::size_t in_more_bits(const CacheShape& types, std::int64_t n_entries) {
    if (!types.high) return 0;
    std::size_t most = 0;
    for (int l = 0; l < types.n_layer(); ++l) {
      if (types.layer(l).is_evictable()) most = std::max(most, types.high_page_bytes(l) - types.page_bytes(l));
    }
    const double n_pages = types.high->fraction * static_cast<double>(n_entries) / kPageEntries;
    return (static_cast<std::size_t>(n_pages) + static_cast<std::size_t>(types.n_cut_heads())) * most;
  }

  const CacheShape plain_;
  const int n_threads_;
};

// A prompt that a session with these options would be fed on the machine that holds these layers.
class PlannedPrompt {
 public:
  PlannedPrompt(const Engine::Impl& engine, const LayerRange& layers, const SessionOptions& options,
                std::int32_t n_tokens)
      : engine_(engine),
        layers_(layers),
        options_(options),
        needs_(evidence_needs(options)),
        n_tokens_(n_tokens),
        model_shape_(cache_shape(spec(), options)),
        shape_(model_shape_.with_layers(layers.first, layers.last)),
        cut_(first_cut(options, model_shape_, n_tokens)),
        repeats_(repeats()),
        pages_(shape_, engine.most_threads) {
    if (!has_cut()) return;
    const CutShape to_cut = cut_shape(model_shape_, n_tokens, cut_.total);
    const Cut check(with_fitting_window(options.eviction, to_cut), to_cut);
  }

  // Returns the estimate for the prompt and n_decode decoded tokens.
  RangeEstimate with_decoded(std::int32_t n_decode) const {
    MemoryEstimate memory{};
    memory.kv_bytes_staging = staging_bytes();
    memory.hidden_bytes = hidden_bytes();
    for (int l = layers_.first; l < layers_.last; ++l) {
      // The present state and the next.
      memory.recurrent_bytes += 2 * engine_.model->impl().info.layers[static_cast<std::size_t>(l)].state_bytes;
    }
    const std::size_t beside = memory.recurrent_bytes + score_bytes();
    std::size_t prefill = pages_of_cut() + memory.kv_bytes_staging + loss_search_bytes() + refit_bytes();
    const int n_together = layers_together(beside + prefill - memory.kv_bytes_staging);
    if (n_together > 1) {
      const std::size_t staging = staging_bytes(n_together);
      prefill += staging - std::exchange(memory.kv_bytes_staging, staging);
    }
    memory.kv_bytes_peak = beside + std::max(prefill, decode_bytes(n_decode));
    return {.memory = memory, .n_together = n_together};
  }

 private:
  const ModelSpec& spec() const { return engine_.model->impl().spec; }
  std::int64_t n_heads() const { return model_shape_.n_cut_heads(); }
  std::int64_t n_entries() const { return n_tokens_ * n_heads(); }
  bool has_cut() const { return cut_.total < n_entries(); }
  bool refits() const { return has_cut() && options_.eviction.fit == Fit::kValues; }
  bool is_chunked() const {
    return options_.eviction.evicts() && options_.prefill_chunk > 0 && n_tokens_ > options_.prefill_chunk;
  }
  // Returns the rows that go through the layers together.
  std::int32_t n_rows() const { return is_chunked() ? options_.prefill_chunk : n_tokens_; }
  // Returns the shape of what a cut stores until its values are refitted.
  CacheShape stored_shape() const { return refits() ? shape_.held() : shape_; }
  // A stage of the cascade rounds the share of every head up.
  std::int64_t n_kept() const { return std::min(n_entries(), cut_.total + n_heads()); }

  // Returns the repeats that follow the prompt. The request to repeat has about twenty tokens, whatever the text is.
  PromptRepeats repeats() const {
    if (is_chunked() || !has_cut() || !needs_.repeats_prompt()) return {};
    return prompt_repeats(*engine_.model, needs_, std::vector<Token>(static_cast<std::size_t>(n_tokens_), 0));
  }

  std::size_t hidden_bytes() const { return hidden_bytes_of(n_rows() + repeats_.n_rows(n_tokens_)) + held_out_rows(); }
  std::size_t hidden_bytes_of(std::int32_t n) const {
    return static_cast<std::size_t>(n) * engine_.model->impl().info.hidden_bytes_per_token();
  }
  // Returns the hidden states of the held-out text.
  std::size_t held_out_rows() const { return 3 * hidden_bytes_of(cut_.n_held_out); }

  std::int32_t n_staged() const { return n_tokens_ + repeats_.n_entries_behind(n_tokens_); }
  std::size_t staging_bytes(int n_together = 1) const {
    return is_chunked() ? 0 : StagingBuffer::bytes_for(shape_.plain(), n_staged(), n_together);
  }

  // Returns the pages of the prompt at the worst moment of its cut.
  std::size_t pages_of_cut() const {
    if (!is_chunked()) return pages_.cut(stored_shape(), n_kept(), 0, n_tokens_) + pages_.windows(n_tokens_, 0);
    const std::int64_t chunk = options_.prefill_chunk;
    return pages_.cut(stored_shape(), std::min(n_entries(), cut_.total), chunk * shape_.n_cut_heads(), n_tokens_) +
           pages_.windows(n_tokens_, chunk);
  }

  // The loss search forks the session, cuts the fork further and feeds it the held-out text, from which windows look
  // back.
  std::size_t loss_search_bytes() const {
    if (cut_.n_held_out == 0) return 0;
    return pages_.cut(stored_shape(), n_kept(), cut_.n_held_out * shape_.n_cut_heads(), n_tokens_) +
           2 * pages_.windows(n_tokens_, cut_.n_held_out) +
           (refits() ? ReferenceAttention::bytes_for(spec(), layers_, n_tokens_) : 0);
  }

  // Returns what refitting values takes, and coding keys again: a turn's once it is through, and a prompt's that were
  // in more bits.
  std::size_t refit_bytes() const {
    return (refits() ? ReferenceAttention::bytes_for(spec(), layers_, n_rows()) : 0) +
           (has_cut() && (is_chunked() || shape_.high) ? key_feedback_bytes(shape_) : 0);
  }

  // Returns the scores of the last cut and of the present one; while layers are cut one after the other, those of a
  // stage.
  std::size_t score_bytes() const {
    if (!needs_.earlier_scores || !has_cut()) return 0;
    const std::size_t n_cuts = options_.budget->unit == Budget::Unit::kLoss ? 4 : 2;
    return n_cuts * static_cast<std::size_t>(cut_.total + n_heads()) * row_bytes(EntryScores::kStored, 1);
  }

  // Returns how many layers can be taken together where the prompt takes `others` bytes beside its staging buffer.
  int layers_together(std::size_t others) const {
    const bool keeps_rows = needs_.all_queries || needs_.log_sum_exp;
    if (is_chunked() || keeps_rows || engine_.pipeline.layers_at_once(layers_.size()) == 1) return 1;
    const std::size_t limit = engine_.kv_bytes_limit;
    if (limit == 0) return layers_.size();
    return StagingBuffer::layers_within(limit / 2 - std::min(limit / 2, others), shape_.plain(), n_staged(),
                                        layers_.size());
  }

  // Returns the pages after n_decode decoded tokens.
  std::size_t decode_bytes(std::int32_t n_decode) const {
    const std::int64_t n_end = std::int64_t{n_tokens_} + n_decode;
    const bool cuts_total = options_.decode_cut == SessionOptions::DecodeCut::kTotal;
    std::int64_t n_grown = n_decode, kept = cut_.total;
    if (cuts_total) {
      n_grown = std::min<std::int64_t>(n_grown, options_.cut_every);
    } else if (options_.decode_cut == SessionOptions::DecodeCut::kOwn && has_cut()) {
      n_grown = std::min<std::int64_t>(n_grown, 1);
    }
    if (cuts_total && options_.eviction.evicts() && !options_.budget->is_relative()) {
      // A prompt shorter than the budget grows to the budget.
      kept = std::max(kept, options_.budget->total_entries(n_end, n_heads(), model_shape_.cut_entry_bytes(n_end)));
    }
    return pages_.cut(shape_, kept, n_grown * shape_.n_cut_heads(), n_end) + pages_.windows(n_end, 1);
  }

  const Engine::Impl& engine_;
  const LayerRange layers_;
  const SessionOptions& options_;
  const EvidenceNeeds needs_;
  const std::int32_t n_tokens_;
  const CacheShape model_shape_, shape_;  // of all layers, and of these
  const FirstCut cut_;
  const PromptRepeats repeats_;
  const PageBytes pages_;
};

}  // namespace

RangeEstimate estimate_of(const Engine::Impl& engine, const LayerRange& layers, const SessionOptions& options,
                          std::int32_t n_prompt, std::int32_t n_decode) {
  return PlannedPrompt(engine, layers, options, n_prompt).with_decoded(n_decode);
}

MemoryEstimate Engine::estimate(const SessionOptions& wanted, std::int32_t n_prompt, std::int32_t n_decode) const {
  if (n_prompt < 1 || n_decode < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "an estimate is for 1 or more prompt tokens and 0 or more to decode, not " + std::to_string(n_prompt) +
                    " and " + std::to_string(n_decode));
  }
  const SessionOptions options = checked_session_options(wanted, impl_->model->impl());
  MemoryEstimate most{};
  for (const LayerRange& layers : impl_->pipeline.ranges()) {
    const MemoryEstimate estimate = estimate_of(*impl_, layers, options, n_prompt, n_decode).memory;
    if (estimate.kv_bytes_peak >= most.kv_bytes_peak) most = estimate;
  }
  return most;
}

}  // namespace winnow
