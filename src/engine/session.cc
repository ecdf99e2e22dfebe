#include "winnow/session.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "engine/engine_impl.h"
#include "engine/session_file.h"
#include "engine/session_options.h"
#include "engine/stored_numbers.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// What n_tokens tokens take in f16 when nothing is cut: what budgets call the full cache, whatever types are stored.
std::size_t full_bytes_in_f16(CacheShape shape, std::int64_t n_tokens) {
  shape.key_type = shape.value_type = EntryType::kF16;
  shape.fine.reset();
  shape.later.reset();
  return shape.full_bytes(n_tokens);
}

// Sums over the ranks, of what each has counted of its own layers, and what the heads of all of them keep.
void add_other_ranks(const Pipeline& pipeline, const CacheShape& shape, SessionStatistics& statistics) {
  std::vector<std::uint64_t> own = {static_cast<std::uint64_t>(statistics.entries_kept),
                                    statistics.bytes_kept,
                                    statistics.bytes_in_pages,
                                    statistics.recurrent_bytes,
                                    statistics.score_bytes,
                                    statistics.bytes_peak,
                                    statistics.hidden_bytes,
                                    statistics.staging_bytes};
  const std::size_t n_sums = own.size();
  // Of every head how many entries it keeps, twice, and 1 if it is raised.
  for (std::size_t l = 0; l < statistics.kept.size(); ++l) {
    for (std::size_t h = 0; h < statistics.kept[l].size(); ++h) {
      own.push_back(static_cast<std::uint64_t>(statistics.kept[l][h]) * 2 + (statistics.raised[l][h] ? 1 : 0));
    }
  }
  std::vector<std::uint64_t> sums(n_sums);
  const auto all = pipeline.gather(std::as_bytes(std::span<const std::uint64_t>(own)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto of_rank = numbers_in<std::uint64_t>(all[rank]);
    for (std::size_t i = 0; i < n_sums; ++i) sums[i] += of_rank[i];
    statistics.rank_bytes_in_pages = std::max<std::size_t>(statistics.rank_bytes_in_pages, of_rank[2]);
    auto next = of_rank.begin() + static_cast<std::ptrdiff_t>(n_sums);
    const LayerRange& range = pipeline.ranges()[rank];
    for (int l = range.first; l < range.last; ++l) {
      std::vector<std::int32_t>& kept = statistics.kept[static_cast<std::size_t>(l)];
      std::vector<bool>& raised = statistics.raised[static_cast<std::size_t>(l)];
      kept.clear();
      raised.clear();
      for (int h = 0; h < shape.layer(l).n_kv_head; ++h, ++next) {
        kept.push_back(static_cast<std::int32_t>(*next / 2));
        raised.push_back(*next % 2 == 1);
      }
    }
  }
  statistics.entries_kept = static_cast<std::int64_t>(sums[0]);
  statistics.bytes_kept = sums[1];
  statistics.bytes_in_pages = sums[2];
  statistics.recurrent_bytes = sums[3];
  statistics.score_bytes = sums[4];
  statistics.bytes_peak = sums[5];
  statistics.hidden_bytes = sums[6];
  statistics.staging_bytes = sums[7];
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
  // With nobody else in the pool the peak that is reported is this session's own.
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
      gathered(other.gathered),
      gathered_at(other.gathered_at),
      decoded_since_cut(other.decoded_since_cut),
      statistics(other.statistics) {}

Session::Impl::~Impl() {
  if (is_stepping) engine_impl().forget(*this);
  if (number != 0) engine_impl().leader.drop(number);
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
                what + " and the context " + std::to_string(options.n_ctx) + ": raise -c or shorten it");
  }
}

void Session::Impl::check_idle() const {
  if (is_stepping) {
    throw Error(ErrorCode::kInvalidArgument, "a step of this session is under way: finish it first");
  }
  if (!is_prefilling) return;
  throw Error(ErrorCode::kInvalidArgument, "a prefill of this session is under way: finish it or give it up first");
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
  gathered.clear();
  gathered_at = 0;
  decoded_since_cut = 0;
  statistics = {};
  set_fine_part(options.eviction.bits.for_budget(options.budget).first_part);
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

void Session::Impl::set_fine_part(double part) {
  if (!shape.fine) return;
  shape.fine->part = part;
  cache.set_fine_part(part);
}

void Session::Impl::take_promise(const LossPromise& promise) {
  statistics.promise = promise;
  set_fine_part(options.eviction.bits.finer_part(promise.taken));
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

Session Session::fork() const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  auto fork = std::make_unique<Impl>(*impl_);
  Leader& leader = impl_->engine_impl().leader;
  fork->number = leader.new_number();
  leader.tell(LedCall::kFork, [&](std::ostream& out) {
    put(out, impl_->number);
    put(out, fork->number);
  });
  return Session(std::move(fork));
}

std::int32_t Session::truncatable(std::int32_t n_tokens) const {
  if (n_tokens >= impl_->n_tokens()) return n_tokens == impl_->n_tokens() ? n_tokens : 0;
  const CacheShape& shape = impl_->shape;
  if (n_tokens <= 0 || impl_->options.eviction.evicts()) return 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const LayerShape& layer = shape.layer(l);
    if (impl_->recurrent.is_recurrent(l)) return 0;
    if (layer.window > 0 && (shape.has_codes() || impl_->n_tokens() > layer.window)) return 0;
  }
  // The codes of a page are those of its entries only while it is full.
  if (!shape.has_codes() || n_tokens <= kPlainEntries) return n_tokens;
  return n_tokens - (n_tokens - kPlainEntries) % kPageEntries;
}

void Session::truncate(std::int32_t n_tokens) {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  if (n_tokens == impl_->n_tokens()) return;
  if (n_tokens <= 0 || truncatable(n_tokens) != n_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "a sequence of " + std::to_string(impl_->n_tokens()) +
                                                 " tokens cannot go back to " + std::to_string(n_tokens) +
                                                 ": truncatable() says how far this session can; fork it before");
  }
  impl_->cache.truncate(n_tokens);
  impl_->tokens.resize(static_cast<std::size_t>(n_tokens));
  impl_->logits.clear();
  impl_->engine_impl().leader.tell(LedCall::kTruncate, [&](std::ostream& out) {
    put(out, impl_->number);
    put(out, n_tokens);
  });
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  impl_->engine_impl().leader.tell(LedCall::kSave, [&](std::ostream& out) {
    put(out, impl_->number);
    put_text(out, path);
  });
  save_session(*impl_, path);
}

// Without the mutex, unless other ranks take part: of what sessions share it uses the page pool alone, and others
// compute meanwhile.
Session Engine::load_session(const std::string& path) {
  std::unique_lock lock(impl_->mutex, std::defer_lock);
  if (impl_->pipeline.is_split()) lock.lock();
  const std::uint64_t number = impl_->leader.new_number();
  impl_->leader.tell(LedCall::kLoad, [&](std::ostream& out) {
    put(out, number);
    put_text(out, path);
  });
  auto session = winnow::load_session(shared_from_this(), path);
  session->number = number;
  return Session(std::move(session));
}

void Session::clear() {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->check_idle();
  impl_->reset();
  impl_->engine_impl().leader.tell(LedCall::kClear, [&](std::ostream& out) { put(out, impl_->number); });
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
  const Pipeline& pipeline = impl_->engine_impl().pipeline;
  if (!pipeline.is_split()) return impl_->own_positions(layer, kv_head);
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->engine_impl().leader.tell(LedCall::kPositions, [&](std::ostream& out) {
    put(out, impl_->number);
    put(out, std::int32_t{layer});
    put(out, std::int32_t{kv_head});
  });
  return pipeline.together([&] {
    if (!pipeline.holds(layer)) return numbers_in<std::int32_t>(pipeline.hear_layer(layer));
    const std::vector<std::int32_t> positions = impl_->own_positions(layer, kv_head);
    pipeline.tell_layer(std::as_bytes(std::span(positions)));
    return positions;
  });
}

std::vector<std::int32_t> Session::Impl::own_positions(int layer, int kv_head) const {
  std::vector<std::int32_t> positions;
  std::vector<kernels::EntryRun> runs;
  for (const kernels::EntryRun& run : cache.entries_by_position(layer, kv_head, runs).runs) {
    run.positions.append_to(positions, run.n_entries);
  }
  return positions;
}

SessionStatistics Session::statistics() const {
  SessionStatistics statistics = impl_->statistics;
  const RaggedCache& cache = impl_->cache;
  const CacheShape& shape = impl_->shape;
  statistics.entries_full = shape.full_entries(impl_->n_tokens());
  statistics.entries_kept = cache.n_entries();
  statistics.bytes_full = full_bytes_in_f16(shape, impl_->n_tokens());
  statistics.bytes_kept = cache.bytes();
  statistics.bytes_in_pages = statistics.rank_bytes_in_pages = cache.bytes_in_pages();
  statistics.recurrent_bytes = impl_->recurrent.bytes();
  statistics.score_bytes = impl_->scores.bytes();
  statistics.bytes_peak = impl_->engine_impl().pool->statistics().bytes_peak;
  for (int l = 0; l < shape.n_layer(); ++l) {
    std::vector<std::int32_t>& row = statistics.kept.emplace_back();
    std::vector<bool>& raised = statistics.raised.emplace_back();
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
      row.push_back(cache.n_entries(l, h));
      raised.push_back(cache.is_raised(l, h));
    }
  }
  const Pipeline& pipeline = impl_->engine_impl().pipeline;
  if (!pipeline.is_split()) return statistics;
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->engine_impl().leader.tell(LedCall::kStatistics, [&](std::ostream& out) { put(out, impl_->number); });
  pipeline.together([&] { add_other_ranks(pipeline, shape, statistics); });
  return statistics;
}

}  // namespace winnow
