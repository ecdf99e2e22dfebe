#include "winnow/session.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "engine/device/device_executor.h"
#include "engine/engine_impl.h"
#include "engine/session_options.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the bytes that n_tokens tokens take in f16 when nothing is cut: budgets count these as the full cache,
// whatever types are stored.
std::size_t full_bytes_in_f16(CacheShape shape, std::int64_t n_tokens) {
  shape.key_type = shape.value_type = EntryType::kF16;
  shape.high.reset();
  shape.later.reset();
  return shape.full_bytes(n_tokens);
}

}  // namespace

Session::Impl::Impl(std::shared_ptr<Engine> the_engine, const SessionOptions& the_options)
    : engine(std::move(the_engine)),
      options(checked_session_options(the_options, model())),
      shape(cache_shape(model().spec, options)),
      cache(shape.with_layers(engine_impl().layers.first, engine_impl().layers.last), engine_impl().pool),
      scores(cache.shape(), engine_impl().pool),
      recurrent(model().spec, engine_impl().pool),
      evidence(evidence_needs(options), model().spec, engine_impl().layers) {
  if (engine_impl().device != nullptr) check_device_session(options, engine_impl().device->info().id);
  // If no other session uses the pool, the peak that is reported is this session's own.
  const PoolStatistics pool = engine_impl().pool->statistics();
  if (pool.bytes_in_use + pool.bytes_reserved == 0) engine_impl().pool->reset_peak();
}

Session::Impl::Impl(const Impl& other)
    : engine(other.engine),
      options(other.options),
      shape(other.shape),
      cache(other.cache.fork()),
      scores(other.scores),
      recurrent(other.recurrent),
      evidence(other.evidence),
      tokens(other.tokens),
      logits(other.logits),
      total(other.total),
      head_budgets(other.head_budgets),
      remote_entries(other.remote_entries),
      decoded_since_cut(other.decoded_since_cut),
      statistics(other.statistics) {}

Session::Impl::~Impl() {
  if (is_stepping) engine_impl().forget(*this);
  engine_impl().calls->forget(number);
}

void Session::Impl::check_tokens(std::span<const Token> more) const {
  if (more.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  for (const Token token : more) {
    if (token < 0 || token >= model().spec.n_vocab) {
      throw Error(ErrorCode::kInvalidArgument, "token " + std::to_string(token) + " is outside the vocabulary of " +
                                                   std::to_string(model().spec.n_vocab));
    }
  }
  if (tokens.size() + more.size() > static_cast<std::size_t>(options.n_ctx)) {
    const std::string what = tokens.empty()
                                 ? "the prompt has " + std::to_string(more.size()) + " tokens"
                                 : "the sequence would have " + std::to_string(tokens.size() + more.size()) + " tokens";
    throw Error(ErrorCode::kContextFull,
                what + ", more than the context of " + std::to_string(options.n_ctx) + ": raise -c or shorten it");
  }
}

void Session::Impl::check_idle() const {
  if (is_stepping) {
    throw Error(ErrorCode::kInvalidArgument, "a step of this session is under way: finish it first");
  }
  if (!is_prefilling) return;
  throw Error(ErrorCode::kInvalidArgument, "a prefill of this session is under way: finish it or give it up first");
}

void Session::Impl::truncate(std::int32_t n) {
  cache.truncate(n);
  tokens.resize(static_cast<std::size_t>(n));
  logits.clear();
}

void Session::Impl::reset() {
  cache.clear();
  scores.clear();
  engine_impl().pool->trim();
  recurrent = RecurrentState(model().spec, engine_impl().pool);
  tokens.clear();
  logits.clear();
  evidence = QueryEvidence(evidence.needs(), model().spec, engine_impl().layers);
  total = 0;
  head_budgets.clear();
  remote_entries.clear();
  decoded_since_cut = 0;
  statistics = {};
  set_high_fraction(options.eviction.bits.for_budget(options.budget).high_fraction);
}

void Session::Impl::reserve_step() {
  if (tokens.size() == tokens.capacity()) tokens.reserve(std::max<std::size_t>(2 * tokens.capacity(), 64));
  logits.reserve(static_cast<std::size_t>(model().spec.n_vocab));
}

void Session::Impl::record_step(Token token, std::span<const float> row, double seconds) {
  tokens.push_back(token);
  cache.settle();
  recurrent.commit();
  logits.assign(row.begin(), row.end());
  statistics.decoded_tokens += 1;
  statistics.decode_s += seconds;
}

Budget Session::Impl::budget() const { return statistics.promise ? statistics.promise->taken : options.budget->most(); }

std::int64_t Session::Impl::total_entries(std::int32_t n) const { return budget_entries(budget(), shape, n); }

void Session::Impl::set_high_fraction(double fraction) {
  if (!shape.high) return;
  shape.high->fraction = fraction;
  cache.set_high_fraction(fraction);
}

void Session::Impl::take_promise(const LossPromise& promise) {
  statistics.promise = promise;
  set_high_fraction(options.eviction.bits.high_fraction_for(promise.taken));
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
  if (impl_->logits.empty()) throw Error(ErrorCode::kInvalidArgument, "there are no logits: feed a token first");
  return impl_->logits;
}

Session Session::fork() const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  return Session(impl_->engine_impl().calls->fork(*impl_));
}

std::int32_t Session::truncatable(std::int32_t n_tokens) const {
  if (n_tokens >= impl_->n_tokens()) return impl_->n_tokens();
  const CacheShape& shape = impl_->shape;
  if (n_tokens <= 0 || impl_->options.eviction.evicts()) return 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const LayerShape& layer = shape.layer(l);
    if (impl_->recurrent.is_recurrent(l)) return 0;
    if (layer.sliding_window > 0 && (shape.has_codes() || impl_->n_tokens() > layer.sliding_window)) return 0;
  }
  // A page holds the codes of its entries only while it is full.
  if (!shape.has_codes() || n_tokens <= kPlainEntries) return n_tokens;
  return n_tokens - (n_tokens - kPlainEntries) % kPageEntries;
}

void Session::truncate(std::int32_t n_tokens) {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  if (n_tokens == impl_->n_tokens()) return;
  if (n_tokens <= 0 || truncatable(n_tokens) != n_tokens) {
    throw Error(ErrorCode::kInvalidArgument,
                "a sequence of " + std::to_string(impl_->n_tokens()) + " tokens cannot go back to " +
                    std::to_string(n_tokens) +
                    ": truncatable() says how far it can; to go back further, fork the session beforehand");
  }
  impl_->engine_impl().calls->truncate(*impl_, n_tokens);
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  impl_->engine_impl().calls->save(*impl_, path);
}

Session Engine::load_session(const std::string& path) { return Session(impl_->calls->load(shared_from_this(), path)); }

void Session::clear() {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  impl_->engine_impl().calls->clear(*impl_);
}

std::int32_t Session::n_tokens() const { return impl_->n_tokens(); }
std::span<const Token> Session::tokens() const { return impl_->tokens; }
const SessionOptions& Session::options() const { return impl_->options; }

const std::shared_ptr<const Model>& Session::model() const { return impl_->engine->model(); }

std::vector<std::int32_t> Session::positions(int layer, int kv_head) const {
  const CacheShape& shape = impl_->shape;
  const bool is_layer = layer >= 0 && layer < shape.n_layer();
  if (!is_layer || kv_head < 0 || kv_head >= shape.layer(layer).n_kv_head) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is no KV head " + std::to_string(kv_head) + " in layer " + std::to_string(layer) +
                    (is_layer ? ": it has " + std::to_string(shape.layer(layer).n_kv_head) + " of them"
                              : ": the model has " + std::to_string(shape.n_layer()) + " layers"));
  }
  return impl_->engine_impl().calls->positions(*impl_, layer, kv_head);
}

std::vector<std::int32_t> Session::Impl::own_positions(int layer, int kv_head) const {
  std::vector<std::int32_t> positions;
  std::vector<kernels::EntryRun> runs;
  for (const kernels::EntryRun& run : cache.entries_by_position(layer, kv_head, runs).runs) {
    run.positions.append_to(positions, run.n_entries);
  }
  return positions;
}

SessionStatistics Session::statistics() const { return impl_->engine_impl().calls->statistics(*impl_); }

SessionStatistics Session::Impl::own_statistics() const {
  SessionStatistics own = statistics;
  own.entries_full = shape.full_entries(n_tokens());
  own.entries_kept = cache.n_entries();
  own.bytes_full = full_bytes_in_f16(shape, n_tokens());
  own.bytes_kept = cache.bytes();
  own.bytes_in_pages = own.rank_bytes_in_pages = cache.bytes_in_pages();
  own.recurrent_bytes = recurrent.bytes();
  own.score_bytes = scores.bytes();
  own.bytes_peak = engine_impl().pool->statistics().bytes_peak;
  for (int l = 0; l < shape.n_layer(); ++l) {
    std::vector<std::int32_t>& row = own.kept.emplace_back();
    std::vector<bool>& raised = own.raised.emplace_back();
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
      row.push_back(cache.n_entries(l, h));
      raised.push_back(cache.is_raised(l, h));
    }
  }
  return own;
}

}  // namespace winnow
