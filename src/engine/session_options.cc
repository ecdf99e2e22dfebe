#include "engine/session_options.h"

#include <algorithm>
#include <string>

#include "eviction/cut.h"
#include "winnow/error.h"

namespace winnow {

CacheShape cache_shape(const Hparams& hparams, const SessionOptions& options) {
  CacheShape shape{.n_layer = hparams.n_layer,
                   .n_kv_head = hparams.n_kv_head,
                   .head_dim = hparams.head_dim,
                   .key_type = options.key_type,
                   .value_type = options.value_type};
  for (const EntryType type : {options.key_type, options.value_type}) {
    const bool blocks = type == EntryType::kQ8_0 || type == EntryType::kQ4_0;
    if (blocks && hparams.head_dim % 32 != 0) {
      throw Error(ErrorCode::kInvalidArgument, "entries of type " + std::string(entry_type_name(type)) +
                                                   " need a head size that is a multiple of 32; this model's is " +
                                                   std::to_string(hparams.head_dim) + ": use f16, bf16 or f32");
    }
  }
  return shape;
}

SessionOptions checked_session_options(SessionOptions options, const Model::Impl& model) {
  const Hparams& hparams = model.hparams;
  options.eviction.find_profile(model.info.fingerprint);
  options.eviction.validate();
  if (options.eviction.evicts() && !options.budget) {
    throw Error(ErrorCode::kInvalidArgument,
                "the method '" + options.eviction.method + "' needs a budget, e.g. 20%, 512 or 64MiB");
  }
  if (!options.eviction.evicts() && options.budget) {
    throw Error(ErrorCode::kInvalidArgument,
                "a budget has no effect with the method 'full': choose a method that evicts, e.g. snapkv");
  }
  if (options.n_ctx < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the context must have at least 1 token, not " + std::to_string(options.n_ctx));
  }
  if (options.n_ctx == 0) options.n_ctx = hparams.n_ctx_train;
  if (options.prefill_chunk < 0 || options.cut_every < 1) {
    throw Error(ErrorCode::kInvalidArgument, "a prefill chunk and the steps between cuts must be at least 1 token");
  }
  const bool cuts_later = options.prefill_chunk > 0 || options.decode_cut != SessionOptions::DecodeCut::kKeep;
  if (cuts_later && !options.eviction.evicts()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "chunked prefill and cuts while decoding have no effect with the method 'full': choose one that evicts");
  }
  return options;
}

EvidenceNeeds evidence_needs(const SessionOptions& options) {
  if (!options.eviction.evicts()) return {};
  EvidenceNeeds needs = Cut::needs(options.eviction);
  // A prompt's rows are gone by the time of a cut while decoding: it is the decoded ones that score.
  if (needs.all_queries && options.decode_cut != SessionOptions::DecodeCut::kKeep) {
    needs.window_rows = std::max(needs.window_rows, options.cut_every);
  }
  if (needs.reconstruction_pass &&
      (options.prefill_chunk > 0 || options.decode_cut != SessionOptions::DecodeCut::kKeep)) {
    throw Error(ErrorCode::kUnsupported, "the method '" + options.eviction.method +
                                             "' scores by a pass that repeats the whole prompt and cannot cut again: "
                                             "leave out chunked prefill and cuts while decoding");
  }
  return needs;
}

std::int64_t budget_entries(const SessionOptions& options, const CacheShape& shape, std::int32_t n) {
  const std::int64_t n_heads = std::int64_t{shape.n_layer} * shape.n_kv_head;
  const std::int64_t wanted = options.budget->total_entries(n, n_heads, shape.entry_bytes());
  if (options.budget->unit == Budget::Unit::kBytes && wanted < n * n_heads &&
      options.budget->amount < static_cast<double>(n_heads) * static_cast<double>(shape.page_bytes())) {
    throw Error(ErrorCode::kInvalidArgument,
                "a budget of " + options.budget->text() + " cannot hold one page per head: " + std::to_string(n_heads) +
                    " heads with pages of " + std::to_string(shape.page_bytes()) + " bytes need at least " +
                    std::to_string(static_cast<std::size_t>(n_heads) * shape.page_bytes()) + " bytes");
  }
  return wanted;
}

}  // namespace winnow
