#include "winnow/session.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "engine/engine_impl.h"
#include "engine/layer_cutting.h"
#include "engine/prompt_pass.h"
#include "engine/session_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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

SessionOptions checked(SessionOptions options, const Hparams& hparams) {
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
  const EvidenceNeeds needs = Cut::needs(options.eviction);
  if (needs.all_queries && (options.prefill_chunk > 0 || options.decode_cut != SessionOptions::DecodeCut::kKeep)) {
    throw Error(ErrorCode::kUnsupported,
                "the method '" + options.eviction.method +
                    "' scores by the first prompt's rows and cannot cut again: set last-rows, or "
                    "leave out chunked prefill and cuts while decoding");
  }
  if (needs.reconstruction_pass) {
    throw Error(ErrorCode::kUnsupported,
                "the method '" + options.eviction.method +
                    "' needs a reconstruction pass over the context, which prefill does not yet make");
  }
  return needs;
}

}  // namespace

Session::Impl::Impl(std::shared_ptr<Engine> the_engine, const SessionOptions& the_options)
    : engine(std::move(the_engine)),
      options(checked(the_options, engine->impl().model->impl().hparams)),
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

void Session::Impl::prefill_layers(std::span<const Token> prompt, const PrefillOptions& callbacks) {
  check_tokens(prompt);
  const Timer timer;
  const CacheShape& shape = cache.shape();
  const auto n = static_cast<std::int32_t>(prompt.size());

  std::unique_ptr<Cut> cut;
  std::int64_t prompt_total = 0;
  if (options.eviction.evicts()) {
    prompt_total = total_entries(n);
    cut = std::make_unique<Cut>(
        options.eviction,
        CutShape{.n_layer = shape.n_layer, .n_kv_head = shape.n_kv_head, .n_tokens = n, .total = prompt_total});
    if (cut->keeps_everything()) cut.reset();
  }

  double evict_s = 0;
  try {
    StagingBuffer staging(shape, n, 0, engine_impl().pool);
    PromptPass pass(*this, prompt, &staging);
    std::vector<std::int32_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    evidence.begin_layers(n);
    pass.run(callbacks.on_progress, [&](int layer) {
      const Timer cutting;
      std::vector<kernels::EntryRun> runs;
      std::vector<kernels::HeadEntries> heads;
      runs.reserve(static_cast<std::size_t>(shape.n_kv_head));
      for (int h = 0; h < shape.n_kv_head; ++h) {
        runs.push_back(staging.run(h, n));
        heads.push_back({.runs = std::span(&runs.back(), 1), .n_entries = n});
      }
      if (!cut) {
        for (int h = 0; h < shape.n_kv_head; ++h) cache.append_from(layer, h, heads[static_cast<std::size_t>(h)], all);
        return;
      }
      for (const LayerCut& due : show_layer(*this, *cut, layer, heads, n)) {
        for (int h = 0; h < shape.n_kv_head; ++h) {
          const std::vector<std::int32_t>& kept = due.kept[static_cast<std::size_t>(h)];
          if (due.layer == layer) {
            cache.append_from(layer, h, heads[static_cast<std::size_t>(h)], kept);
          } else {
            cache.keep(due.layer, h, kept);
          }
        }
      }
      evict_s += cutting.seconds();
    });
    evidence.end_layers();
    pass.read_logits(callbacks.on_logits);
    note_sizes(pass.hidden_bytes(), staging.bytes());
  } catch (...) {
    evidence = QueryEvidence(evidence.needs(), model().hparams);
    cache.clear();
    engine_impl().pool->trim();
    throw;
  }
  if (cut) engine_impl().pool->trim();
  tokens.assign(prompt.begin(), prompt.end());
  total = prompt_total;
  note_head_budgets();
  statistics.prompt_tokens += n;
  statistics.evict_s += evict_s;
  statistics.prefill_s += timer.seconds();
}

void Session::Impl::append(std::span<const Token> more, const PrefillOptions& callbacks) {
  check_tokens(more);
  const Timer timer;
  const CacheShape& shape = cache.shape();
  const auto n = static_cast<std::int32_t>(more.size());
  const std::int32_t position = n_tokens();
  QueryEvidence before = evidence;
  try {
    for (int l = 0; l < shape.n_layer; ++l) {
      for (int h = 0; h < shape.n_kv_head; ++h) cache.extend(l, h, n, position);
    }
    PromptPass pass(*this, more, nullptr);
    pass.run(callbacks.on_progress, nullptr);
    pass.read_logits(callbacks.on_logits);
    note_sizes(pass.hidden_bytes(), 0);
  } catch (...) {
    cache.truncate(position);
    evidence = std::move(before);
    throw;
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  statistics.prompt_tokens += n;
  statistics.prefill_s += timer.seconds();
}

void Session::Impl::prefill_chunks(std::span<const Token> prompt, const PrefillOptions& callbacks) {
  check_tokens(prompt);
  const std::int64_t prompt_total = total_entries(static_cast<std::int32_t>(prompt.size()));
  const auto chunk_tokens = static_cast<std::size_t>(options.prefill_chunk);
  const auto n_layer = std::int64_t{cache.shape().n_layer};
  try {
    for (std::size_t first = 0; first < prompt.size(); first += chunk_tokens) {
      PrefillOptions chunk = callbacks;
      if (callbacks.on_progress) {
        chunk.on_progress = [&](std::int64_t done, std::int64_t /*of_the_chunk*/) {
          return callbacks.on_progress(static_cast<std::int64_t>(first) * n_layer + done,
                                       static_cast<std::int64_t>(prompt.size()) * n_layer);
        };
      }
      append(prompt.subspan(first, std::min(chunk_tokens, prompt.size() - first)), chunk);
      cut_to_total(prompt_total);
    }
  } catch (...) {
    cache.clear();
    tokens.clear();
    logits.clear();
    evidence = QueryEvidence(evidence.needs(), model().hparams);
    statistics.prompt_tokens = 0;
    engine_impl().pool->trim();
    throw;
  }
}

void Session::Impl::run_cut(const CutShape& cut_shape, int max_window_rows) {
  const Timer timer;
  const CacheShape& shape = cache.shape();
  Cut cut(options.eviction, cut_shape);
  if (cut.keeps_everything()) return;
  for (int l = 0; l < shape.n_layer; ++l) {
    std::vector<kernels::HeadEntries> heads;
    for (int h = 0; h < shape.n_kv_head; ++h) heads.push_back(cache.entries(l, h));
    for (const LayerCut& due : show_layer(*this, cut, l, heads, n_tokens(), max_window_rows)) {
      for (int h = 0; h < shape.n_kv_head; ++h) cache.keep(due.layer, h, due.kept[static_cast<std::size_t>(h)]);
    }
  }
  statistics.evict_s += timer.seconds();
}

void Session::Impl::cut_to_total(std::int64_t new_total) {
  const Timer timer;
  const CacheShape& shape = cache.shape();
  total = new_total;
  run_cut({.n_layer = shape.n_layer,
           .n_kv_head = shape.n_kv_head,
           .n_tokens = n_tokens(),
           .total = total,
           .stored = cache.n_entries()},
          std::numeric_limits<int>::max());
  note_head_budgets();
  engine_impl().pool->trim();
  decoded_since_cut = 0;
  statistics.prefill_s += timer.seconds();
}

void Session::Impl::check_cut(std::int32_t n_more, std::int64_t new_total) const {
  const CacheShape& shape = cache.shape();
  const Cut cut(options.eviction,
                {.n_layer = shape.n_layer,
                 .n_kv_head = shape.n_kv_head,
                 .n_tokens = n_tokens() + n_more,
                 .total = new_total,
                 .stored = cache.n_entries() + std::int64_t{n_more} * shape.n_layer * shape.n_kv_head});
  if (!cut.keeps_everything() && evidence.needs().all_queries) {
    throw Error(ErrorCode::kUnsupported,
                "the method '" + options.eviction.method +
                    "' scores by the first prompt's rows and cannot cut again: set last-rows, or "
                    "feed later turns with append");
  }
}

std::int64_t Session::Impl::decode_total(std::int32_t n) const {
  const CacheShape& shape = cache.shape();
  const std::int64_t n_heads = std::int64_t{shape.n_layer} * shape.n_kv_head;
  const bool is_fraction = options.budget->unit == Budget::Unit::kFraction;
  if (is_fraction && total == 0) return n * n_heads;  // there was no prompt
  return is_fraction ? total : options.budget->total_entries(n, n_heads, shape.entry_bytes());
}

void Session::Impl::check_cut_after_decode() const {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  const bool is_own = options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty();
  if (!is_own && decoded_since_cut + 1 >= options.cut_every) check_cut(1, decode_total(n_tokens() + 1));
}

void Session::Impl::note_head_budgets() {
  head_budgets.clear();
  if (cache.n_entries() < std::int64_t{n_tokens()} * cache.shape().n_layer * cache.shape().n_kv_head) {
    for (int l = 0; l < cache.shape().n_layer; ++l) {
      for (int h = 0; h < cache.shape().n_kv_head; ++h) head_budgets.push_back(cache.n_entries(l, h));
    }
  }
}

void Session::Impl::cut_after_decode() {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  const CacheShape& shape = cache.shape();
  CutShape cut{.n_layer = shape.n_layer,
               .n_kv_head = shape.n_kv_head,
               .n_tokens = n_tokens(),
               .total = decode_total(n_tokens()),
               .stored = cache.n_entries()};
  if (options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty()) {
    cut.fixed_budget = head_budgets;
    run_cut(cut, 1);
  } else if (++decoded_since_cut >= options.cut_every) {
    decoded_since_cut = 0;
    run_cut(cut, std::numeric_limits<int>::max());
  }
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

void Session::prefill(std::span<const Token> prompt, const PrefillOptions& callbacks) {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  const bool evicts = impl_->options.eviction.evicts();
  const std::int32_t chunk = impl_->options.prefill_chunk;
  if (!impl_->tokens.empty()) {
    impl_->check_tokens(prompt);
    std::int64_t new_total = 0;
    if (evicts) {
      const auto n = static_cast<std::int32_t>(prompt.size());
      new_total = impl_->total_entries(impl_->n_tokens() + n);
      impl_->check_cut(n, new_total);
    }
    impl_->append(prompt, callbacks);
    if (evicts) impl_->cut_to_total(new_total);
  } else if (evicts && chunk > 0 && prompt.size() > static_cast<std::size_t>(chunk)) {
    impl_->prefill_chunks(prompt, callbacks);
  } else {
    impl_->prefill_layers(prompt, callbacks);
  }
}

void Session::append(std::span<const Token> more, const PrefillOptions& callbacks) {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  impl_->append(more, callbacks);
}

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
  return Session(std::make_unique<Impl>(*impl_));
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(impl_->engine_impl().mutex);
  save_session(*impl_, path);
}

Session Engine::load_session(const std::string& path) {
  const std::lock_guard lock(impl_->mutex);
  return Session(winnow::load_session(shared_from_this(), path));
}

void Session::clear() {
  const std::lock_guard lock(impl_->engine_impl().mutex);
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
