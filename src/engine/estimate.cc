#include "engine/estimate.h"

#include <algorithm>
#include <utility>

#include "cache/staging_buffer.h"
#include "engine/engine_impl.h"
#include "engine/evidence/key_feedback.h"
#include "engine/evidence/reference_attention.h"
#include "engine/prefill/loss_search.h"
#include "engine/prefill/reconstruction.h"
#include "engine/session_options.h"
#include "eviction/cut/fitting_window.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns how many of n_layers layers can be taken together within the limit, where the prompt takes bytes_one_by_one
// bytes if it goes through the layers of `shape` one by one.
int layers_together(const Engine::Impl& engine, const CacheShape& shape, int n_layers, std::int32_t n_staged,
                    std::size_t bytes_one_by_one) {
  const std::size_t limit = engine.kv_bytes_limit;
  if (limit == 0) return n_layers;
  const std::size_t others = bytes_one_by_one - StagingBuffer::bytes_for(shape, n_staged);
  return StagingBuffer::layers_within(limit / 2 - std::min(limit / 2, others), shape, n_staged, n_layers);
}

}  // namespace

// How a cut shares entries among layers is not known in advance: all that it keeps may be in these layers, as far as
// their heads hold it.
RangeEstimate estimate_of(const Engine::Impl& engine, const LayerRange& layers, const SessionOptions& options,
                          std::int32_t n_prompt, std::int32_t n_decode) {
  const Model::Impl& model = engine.model->impl();
  const CacheShape whole_shape = cache_shape(model.spec, options);
  const CacheShape shape = whole_shape.with_layers(layers.first, layers.last);
  const EvidenceNeeds needs = evidence_needs(options);
  const std::int64_t n_heads = whole_shape.n_cut_heads(), n_own_heads = shape.n_cut_heads();
  const std::int64_t whole = n_prompt * n_heads;
  std::int64_t total =
      options.eviction.evicts() ? budget_entries(options.budget->most(), whole_shape, n_prompt) : whole;
  const bool has_loss = options.budget && options.budget->unit == Budget::Unit::kLoss;
  const std::int32_t n_held_out = has_loss ? held_out_tokens(n_prompt) : 0;
  if (has_loss) total = n_held_out > 0 ? std::min(total, whole - 1) : whole;
  if (total < whole) {
    const CutShape to_cut = cut_shape(whole_shape, n_prompt, total);
    const Cut check(with_fitting_window(options.eviction, to_cut), to_cut);
  }

  // Every head's last page may hold a single entry. Layers differ in size, so each is counted as the largest, up to
  // what its heads hold. Entries that come later are stored in plain pages until these are full, and so are a head's
  // first ones.
  const CacheShape plain = shape.plain();
  const bool refits = total < whole && options.eviction.fit == Fit::kValues;
  const CacheShape cut_types = refits ? shape.held() : shape;  // what a cut stores until its values are refitted
  const auto largest_page = [&](const CacheShape& types) {
    std::size_t largest = 0;
    for (int l = 0; l < types.n_layer(); ++l) {
      if (types.layer(l).is_cut()) largest = std::max(largest, types.page_bytes(l));
    }
    return largest;
  };
  // Returns the bytes of n_pages pages in every head.
  const auto heads_bytes = [&](const CacheShape& types, std::size_t n_pages) {
    std::size_t bytes = 0;
    for (int l = 0; l < types.n_layer(); ++l) {
      if (types.layer(l).is_cut()) bytes += static_cast<std::size_t>(types.layer(l).n_kv_head) * types.page_bytes(l);
    }
    return bytes * n_pages;
  };
  const auto pages_of = [](std::int64_t n) { return static_cast<std::size_t>((n + kPageEntries - 1) / kPageEntries); };
  const auto cut_bytes = [&](const CacheShape& types, std::int64_t n_entries, std::int64_t n_later,
                             std::int64_t n_tokens) {
    const auto bytes_of = [&](const CacheShape& stored, std::int64_t n, std::int64_t n_in_head) {
      const std::int64_t n_pages = (n + n_own_heads * (kPageEntries - 1)) / kPageEntries;
      return std::min(static_cast<std::size_t>(n_pages) * largest_page(stored),
                      heads_bytes(stored, pages_of(n_in_head)));
    };
    if (!types.has_codes()) return bytes_of(types, n_entries + n_later, n_tokens);
    // The first and the last page of each head, and pages that are being coded while they are still held plain.
    const std::size_t turning = 2 * heads_bytes(plain, 1) + static_cast<std::size_t>(engine.most_threads) *
                                                                (largest_page(types) + largest_page(plain));
    // The part of a head in more bits is rounded up to a page while layers are cut one after the other.
    std::size_t high_extra = 0;
    if (types.high) {
      std::size_t most = 0;
      for (int l = 0; l < types.n_layer(); ++l) {
        if (types.layer(l).is_cut()) most = std::max(most, types.high_page_bytes(l) - types.page_bytes(l));
      }
      const double n_pages = types.high->fraction * static_cast<double>(n_entries) / kPageEntries;
      high_extra = (static_cast<std::size_t>(n_pages) + static_cast<std::size_t>(n_own_heads)) * most;
    }
    return bytes_of(types, n_entries, n_tokens) + high_extra + turning +
           (n_later > n_own_heads ? bytes_of(plain, n_later, n_later / n_own_heads + 1) : 0);
  };
  // A window's first entry may be anywhere on its page.
  const auto window_bytes = [&](std::int64_t n_tokens, std::int64_t n_new) {
    std::size_t bytes = 0;
    for (int l = 0; l < shape.n_layer(); ++l) {
      const LayerShape& layer = shape.layer(l);
      if (layer.sliding_window == 0 || layer.n_kv_head == 0) continue;
      const std::int64_t n = std::min(n_tokens, layer.sliding_window + n_new) + kPageEntries - 1;
      bytes += static_cast<std::size_t>(layer.n_kv_head) * pages_of(n) * plain.page_bytes(l);
    }
    return bytes;
  };
  const bool is_chunked = options.eviction.evicts() && options.prefill_chunk > 0 && n_prompt > options.prefill_chunk;
  MemoryEstimate estimate{};
  std::size_t prefill_peak = 0;
  std::int32_t n_staged = 0;
  if (is_chunked) {
    const std::int64_t chunk = options.prefill_chunk;
    prefill_peak =
        cut_bytes(cut_types, std::min(whole, total), chunk * n_own_heads, n_prompt) + window_bytes(n_prompt, chunk);
    estimate.hidden_bytes = static_cast<std::size_t>(chunk);
  } else {
    std::int32_t n_hidden = n_prompt;
    n_staged = n_prompt;
    if (total < whole && needs.reconstruction_pass) {
      // The request to repeat has about twenty tokens, whatever the text of the context.
      const std::vector<Token> stand_in(static_cast<std::size_t>(n_prompt), 0);
      std::int32_t longest = 0;
      for (const std::vector<Token>& part : reconstruction_parts(*engine.model, stand_in)) {
        longest = std::max(longest, static_cast<std::int32_t>(part.size()));
        n_hidden += static_cast<std::int32_t>(part.size());
      }
      n_staged += longest;
    }
    if (total < whole && needs.late_repeat) {
      n_hidden += n_prompt;
      n_staged += most_entries_behind(late_repeat(model.spec), n_prompt);
    }
    estimate.kv_bytes_staging = StagingBuffer::bytes_for(shape.plain(), n_staged);
    // A stage of the cascade rounds the share of every head up.
    prefill_peak = cut_bytes(cut_types, std::min(whole, total + n_heads), 0, n_prompt) + window_bytes(n_prompt, 0) +
                   estimate.kv_bytes_staging;
    estimate.hidden_bytes = static_cast<std::size_t>(n_hidden);
  }
  estimate.hidden_bytes *= model.info.hidden_bytes_per_token();

  if (n_held_out > 0) {
    // The loss search forks the session, cuts the fork further and feeds it the held-out text, from which windows look
    // back.
    prefill_peak += cut_bytes(cut_types, std::min(whole, total + n_heads), n_held_out * n_own_heads, n_prompt) +
                    2 * window_bytes(n_prompt, n_held_out);
    if (refits) prefill_peak += ReferenceAttention::bytes_for(model.spec, layers, n_prompt);
    estimate.hidden_bytes += 3 * static_cast<std::size_t>(n_held_out) * model.info.hidden_bytes_per_token();
  }
  if (refits) {
    prefill_peak += ReferenceAttention::bytes_for(model.spec, layers, is_chunked ? options.prefill_chunk : n_prompt);
  }
  // A turn's keys are coded once it is through, and so may a prompt's be that were in more bits.
  if (total < whole && (is_chunked || shape.high)) prefill_peak += key_feedback_bytes(shape);

  // The scores of the last cut and of the present one; while layers are cut one after the other, those of a stage.
  const std::size_t scores =
      needs.earlier_scores && total < whole
          ? (has_loss ? 4 : 2) * static_cast<std::size_t>(total + n_heads) * row_bytes(EntryScores::kStored, 1)
          : 0;
  const std::int64_t n_end = std::int64_t{n_prompt} + n_decode;
  std::int64_t grown = n_decode;
  if (options.decode_cut == SessionOptions::DecodeCut::kTotal) {
    grown = std::min<std::int64_t>(grown, options.cut_every);
  } else if (options.decode_cut == SessionOptions::DecodeCut::kOwn && total < whole) {
    grown = std::min<std::int64_t>(grown, 1);
  }
  std::int64_t decoding = total;
  if (options.decode_cut == SessionOptions::DecodeCut::kTotal && options.eviction.evicts()) {
    // A prompt shorter than the budget grows to the budget.
    const std::int64_t final_total =
        options.budget->is_relative()
            ? total
            : options.budget->total_entries(n_end, n_heads, whole_shape.cut_entry_bytes(n_end));
    decoding = std::max(total, final_total);
  }
  for (int l = layers.first; l < layers.last; ++l) {
    const std::size_t state_bytes = model.info.layers[static_cast<std::size_t>(l)].state_bytes;
    estimate.recurrent_bytes += 2 * state_bytes;  // the present state and the next
  }
  int n_together = 1;
  if (n_staged > 0 && engine.pipeline.layers_at_once(layers.size()) > 1 && !needs.all_queries && !needs.log_sum_exp) {
    n_together = layers_together(engine, shape.plain(), layers.size(), n_staged,
                                 estimate.recurrent_bytes + scores + prefill_peak);
    const std::size_t staging = StagingBuffer::bytes_for(shape.plain(), n_staged, n_together);
    prefill_peak += staging - std::exchange(estimate.kv_bytes_staging, staging);
  }
  estimate.kv_bytes_peak =
      estimate.recurrent_bytes + scores +
      std::max(prefill_peak, cut_bytes(shape, decoding, grown * n_own_heads, n_end) + window_bytes(n_end, 1));
  return {.memory = estimate, .n_together = n_together};
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
