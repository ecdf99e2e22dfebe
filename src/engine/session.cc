#include "winnow/session.h"

#include <algorithm>

#include "engine/engine_impl.h"
#include "engine/session_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

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

SessionOptions checked(SessionOptions options, const Model::Impl& model) {
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

}  // namespace

Session::Impl::Impl(std::shared_ptr<Engine> the_engine, const SessionOptions& the_options)
    : engine(std::move(the_engine)),
      options(checked(the_options, engine->impl().model->impl())),
      cache(cache_shape(model().hparams, options), engine_impl().pool),
      evidence(evidence_needs(options), model().hparams) {
  // With nobody else in the pool the peak that is reported is this session's own.
  const PoolStatistics pool = engine_impl().pool->statistics();
  if (pool.bytes_in_use + pool.bytes_reserved == 0) engine_impl().pool->reset_peak();
}

Session::Impl::Impl(const Impl& other)
    : engine(other.engine),
      options(other.options),
      cache(other.cache.fork()),
      evidence(other.evidence),
      tokens(other.tokens),
      logits(other.logits),
      total(other.total),
      head_budgets(other.head_budgets),
      decoded_since_cut(other.decoded_since_cut),
      statistics(other.statistics) {}

void Session::Impl::check_tokens(std::span<const Token> more) const {
  if (more.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  for (const Token token : more) {
    if (token < 0 || token >= model().hparams.n_vocab) {
      throw Error(ErrorCode::kInvalidArgument, "token " + std::to_string(token) + " is outside the vocabulary of " +
                                                   std::to_string(model().hparams.n_vocab));
    }
  }
  if (tokens.size() + more.size() > static_cast<std::size_t>(options.n_ctx)) {
    const std::string what = tokens.empty()
                                 ? "the prompt has " + std::to_string(more.size()) + " tokens"
                                 : "the sequence would have " + std::to_string(tokens.size() + more.size()) + " tokens";
    throw Error(ErrorCode::kContextFull,
                what + " and the context " + std::to_string(options.n_ctx) + ": raise -c or shorten it");
  }
}

void Session::Impl::check_idle() const {
  if (!is_prefilling) return;
  throw Error(ErrorCode::kInvalidArgument, "a prefill of this session is under way: finish it or give it up first");
}

std::int64_t Session::Impl::total_entries(std::int32_t n) const {
  const CacheShape& shape = cache.shape();
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

void Session::Impl::note_sizes(std::size_t hidden_bytes, std::size_t staging_bytes) {
  statistics.hidden_bytes = std::max(statistics.hidden_bytes, hidden_bytes);
  statistics.staging_bytes = std::max(statistics.staging_bytes, staging_bytes);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

void Session::decode(Token token) {
  Session* self = this;
  impl_->engine->decode(std::span(&self, 1), std::span(&token, 1));
}

std::span<const float> Session::logits() const {
  if (impl_->logits.empty()) throw Error(ErrorCode::kInvalidArgument, "no token was fed yet: prefill a prompt first");
  return impl_->logits;
}

std::vector<Token> Session::generate(Sampler& sampler, int max_tokens, const std::function<bool(Token)>& on_token) {
  std::vector<Token> generated;
  while (static_cast<int>(generated.size()) < max_tokens) {
    const Token token = sampler.sample(logits());
    if (impl_->engine->model()->is_end_of_generation(token)) break;
    generated.push_back(token);
    const bool go_on = !on_token || on_token(token);
    // The last token is fed too: the session then continues where the text ends.
    if (impl_->n_tokens() < impl_->options.n_ctx) decode(token);
    if (!go_on || impl_->n_tokens() >= impl_->options.n_ctx) break;
  }
  return generated;
}

Session Session::fork() const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  return Session(std::make_unique<Impl>(*impl_));
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  save_session(*impl_, path);
}

Session Engine::load_session(const std::string& path) {
  const std::lock_guard lock(impl_->mutex);
  return Session(winnow::load_session(shared_from_this(), path));
}

void Session::clear() {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  impl_->cache.clear();
  impl_->engine_impl().pool->trim();
  impl_->tokens.clear();
  impl_->logits.clear();
  impl_->evidence = QueryEvidence(impl_->evidence.needs(), impl_->model().hparams);
  impl_->total = 0;
  impl_->head_budgets.clear();
  impl_->decoded_since_cut = 0;
  impl_->statistics = {};
}

std::int32_t Session::n_tokens() const { return impl_->n_tokens(); }
std::span<const Token> Session::tokens() const { return impl_->tokens; }
const SessionOptions& Session::options() const { return impl_->options; }

std::vector<std::int32_t> Session::positions(int layer, int kv_head) const {
  const CacheShape& shape = impl_->cache.shape();
  if (layer < 0 || layer >= shape.n_layer || kv_head < 0 || kv_head >= shape.n_kv_head) {
    throw Error(ErrorCode::kInvalidArgument, "there is no KV head " + std::to_string(kv_head) + " in layer " +
                                                 std::to_string(layer) + ": the model has " +
                                                 std::to_string(shape.n_layer) + " layers of " +
                                                 std::to_string(shape.n_kv_head));
  }
  std::vector<std::int32_t> positions;
  for (const kernels::EntryRun& run : impl_->cache.entries(layer, kv_head).runs) {
    positions.insert(positions.end(), run.positions, run.positions + run.n_entries);
  }
  return positions;
}

SessionStatistics Session::statistics() const {
  SessionStatistics statistics = impl_->statistics;
  const CacheShape& shape = impl_->cache.shape();
  statistics.entries_full = std::int64_t{impl_->n_tokens()} * shape.n_layer * shape.n_kv_head;
  statistics.entries_kept = impl_->cache.n_entries();
  statistics.bytes_full = static_cast<std::size_t>(statistics.entries_full) * shape.entry_bytes();
  statistics.bytes_kept = static_cast<std::size_t>(statistics.entries_kept) * shape.entry_bytes();
  statistics.bytes_in_pages = impl_->cache.bytes_in_pages();
  statistics.bytes_peak = impl_->engine_impl().pool->statistics().bytes_peak;
  for (int l = 0; l < shape.n_layer; ++l) {
    std::vector<std::int32_t>& row = statistics.kept.emplace_back();
    for (int h = 0; h < shape.n_kv_head; ++h) row.push_back(impl_->cache.n_entries(l, h));
  }
  return statistics;
}

}  // namespace winnow
