// What a request will take at most, before it is started.
#include <algorithm>

#include "cache/staging_buffer.h"
#include "engine/prefill_impl.h"
#include "engine/session_options.h"
#include "winnow/error.h"

namespace winnow {

MemoryEstimate Engine::estimate(const SessionOptions& wanted, std::int32_t n_prompt, std::int32_t n_decode) const {
  if (n_prompt < 1 || n_decode < 0) {
    throw Error(ErrorCode::kInvalidArgument, "an estimate needs at least one prompt token and none or more to decode");
  }
  const Model::Impl& model = impl_->model->impl();
  const SessionOptions options = checked_session_options(wanted, model);
  const CacheShape shape = cache_shape(model.hparams, options);
  const EvidenceNeeds needs = evidence_needs(options);
  const std::int64_t n_heads = std::int64_t{shape.n_layer} * shape.n_kv_head;
  const std::int64_t whole = n_prompt * n_heads;
  const std::int64_t total = options.eviction.evicts() ? budget_entries(options, shape, n_prompt) : whole;
  if (total < whole) {
    const Cut check(options.eviction,
                    {.n_layer = shape.n_layer, .n_kv_head = shape.n_kv_head, .n_tokens = n_prompt, .total = total});
  }

  // Every head's last page may hold a single entry.
  const auto page_bytes = [&](std::int64_t n_entries) {
    const std::int64_t n_pages = (n_entries + n_heads * (kPageEntries - 1)) / kPageEntries;
    return static_cast<std::size_t>(n_pages) * shape.page_bytes();
  };
  const bool is_chunked = options.eviction.evicts() && options.prefill_chunk > 0 && n_prompt > options.prefill_chunk;
  MemoryEstimate estimate{};
  std::size_t prefill_peak = 0;
  if (is_chunked) {
    const std::int64_t chunk = options.prefill_chunk;
    prefill_peak = page_bytes(std::min(whole, total + chunk * n_heads));
    estimate.hidden_bytes = static_cast<std::size_t>(chunk);
  } else {
    std::int32_t n_staged = n_prompt, n_hidden = n_prompt;
    if (total < whole && needs.reconstruction_pass) {
      // The request to repeat has some twenty tokens; the text of the context does not change their number.
      const std::vector<Token> stand_in(static_cast<std::size_t>(n_prompt), 0);
      std::int32_t longest = 0;
      for (const std::vector<Token>& part : reconstruction_parts(*impl_->model, stand_in)) {
        longest = std::max(longest, static_cast<std::int32_t>(part.size()));
        n_hidden += static_cast<std::int32_t>(part.size());
      }
      n_staged += longest;
    }
    estimate.kv_bytes_staging = StagingBuffer::bytes_for(shape, n_staged);
    // A stage of the cascade rounds every share up.
    prefill_peak = page_bytes(std::min(whole, total + n_heads)) + estimate.kv_bytes_staging;
    estimate.hidden_bytes = static_cast<std::size_t>(n_hidden);
  }
  estimate.hidden_bytes *= static_cast<std::size_t>(model.info.n_embd) * sizeof(float);

  std::int64_t grown = n_decode;
  if (options.decode_cut == SessionOptions::DecodeCut::kTotal) {
    grown = std::min<std::int64_t>(grown, options.cut_every);
  } else if (options.decode_cut == SessionOptions::DecodeCut::kOwn && total < whole) {
    grown = std::min<std::int64_t>(grown, 1);
  }
  std::int64_t decoding = total;
  if (options.decode_cut == SessionOptions::DecodeCut::kTotal && options.eviction.evicts()) {
    // A prompt shorter than the budget grows up to it.
    const std::int64_t n_end = std::int64_t{n_prompt} + n_decode;
    const std::int64_t final_total = options.budget->unit == Budget::Unit::kFraction
                                         ? total
                                         : options.budget->total_entries(n_end, n_heads, shape.entry_bytes());
    decoding = std::max(total, final_total);
  }
  estimate.kv_bytes_peak = std::max(prefill_peak, page_bytes(decoding + grown * n_heads));
  return estimate;
}

}  // namespace winnow
