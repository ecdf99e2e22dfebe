#include "engine/ranks/ranked_calls.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/evidence/code_cost.h"
#include "engine/prefill/prefill_impl.h"
#include "engine/stored_numbers.h"
#include "engine/stored_options.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Adds up what each rank has counted of its own layers, and collects what the heads of all layers keep.
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
  // For every head: twice the number of entries that it keeps, plus 1 if it is raised.
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
  const CodeLoss own_loss = statistics.code_loss.value_or(CodeLoss{});
  CodeLoss loss;
  for (const std::vector<std::byte>& of_rank : pipeline.gather(std::as_bytes(std::span(&own_loss, 1)))) {
    add_code_loss(loss, numbers_in<CodeLoss>(of_rank).at(0));
  }
  if (loss.n_heads > 0) statistics.code_loss = loss;
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

std::unique_ptr<Session::Impl> RankedCalls::open(std::shared_ptr<Engine> engine, const SessionOptions& options) {
  auto session = EngineCalls::open(std::move(engine), options);
  if (!leader_.leads()) return session;
  const std::lock_guard lock(session->engine_impl().mutex);
  session->number = leader_.new_number();
  leader_.tell(LedCall::kOpen, [&](std::ostream& out) {
    put(out, session->number);
    put_options(out, session->options);
    if (session->options.budget) put(out, session->options.budget->amount);
  });
  return session;
}

// Loads on all ranks together, since all read the file.
std::unique_ptr<Session::Impl> RankedCalls::load(std::shared_ptr<Engine> engine, const std::string& path) {
  const std::lock_guard lock(engine->impl().mutex);
  const std::uint64_t number = leader_.new_number();
  leader_.tell(LedCall::kLoad, [&](std::ostream& out) {
    put(out, number);
    put_text(out, path);
  });
  auto session = EngineCalls::load(engine, path);
  session->number = number;
  return session;
}

std::vector<std::int32_t> RankedCalls::positions(const Session::Impl& session, int layer, int kv_head) {
  const std::lock_guard lock(session.engine_impl().mutex);
  leader_.tell(LedCall::kPositions, [&](std::ostream& out) {
    put(out, session.number);
    put(out, std::int32_t{layer});
    put(out, std::int32_t{kv_head});
  });
  return pipeline_.together([&] {
    if (!pipeline_.holds(layer)) return numbers_in<std::int32_t>(pipeline_.receive_layer(layer));
    const std::vector<std::int32_t> positions = session.own_positions(layer, kv_head);
    pipeline_.share_layer(std::as_bytes(std::span(positions)));
    return positions;
  });
}

SessionStatistics RankedCalls::statistics(const Session::Impl& session) {
  SessionStatistics statistics = session.own_statistics();
  const std::lock_guard lock(session.engine_impl().mutex);
  leader_.tell(LedCall::kStatistics, [&](std::ostream& out) { put(out, session.number); });
  pipeline_.together([&] { add_other_ranks(pipeline_, session.shape, statistics); });
  return statistics;
}

void RankedCalls::forget(std::uint64_t number) {
  if (number != 0) leader_.drop(number);
}

void RankedCalls::save(const Session::Impl& session, const std::string& path) {
  leader_.tell(LedCall::kSave, [&](std::ostream& out) {
    put(out, session.number);
    put_text(out, path);
  });
  EngineCalls::save(session, path);
}

std::unique_ptr<Session::Impl> RankedCalls::fork(const Session::Impl& session) {
  auto fork = EngineCalls::fork(session);
  fork->number = leader_.new_number();
  leader_.tell(LedCall::kFork, [&](std::ostream& out) {
    put(out, session.number);
    put(out, fork->number);
  });
  return fork;
}

void RankedCalls::truncate(Session::Impl& session, std::int32_t n_tokens) {
  EngineCalls::truncate(session, n_tokens);
  leader_.tell(LedCall::kTruncate, [&](std::ostream& out) {
    put(out, session.number);
    put(out, n_tokens);
  });
}

void RankedCalls::clear(Session::Impl& session) {
  EngineCalls::clear(session);
  leader_.tell(LedCall::kClear, [&](std::ostream& out) { put(out, session.number); });
}

void RankedCalls::begin_prefill(Prefill::Impl& prefill) {
  // A rank that leads has not told the others yet: an error here is its own.
  if (leader_.leads()) return EngineCalls::begin_prefill(prefill);
  pipeline_.together([&] { EngineCalls::begin_prefill(prefill); });
}

void RankedCalls::tell_prefill(Prefill::Impl& prefill) {
  if (std::exchange(prefill.slices.is_told, true)) {
    return leader_.tell(LedCall::kSlice, [&](std::ostream& out) { put(out, prefill.slices.number); });
  }
  prefill.slices.number = leader_.new_number();
  leader_.tell(prefill.is_append ? LedCall::kAppend : LedCall::kPrefill, [&](std::ostream& out) {
    std::vector<std::uint64_t> numbers;
    for (const Session::Impl* session : prefill.sessions) numbers.push_back(session->number);
    put_array(out, std::span<const std::uint64_t>(numbers));
    put_array(out, std::span<const Token>(prefill.tokens));
    const PrefillOptions& callbacks = prefill.callbacks;
    for (const bool wanted : {static_cast<bool>(callbacks.on_logits), static_cast<bool>(callbacks.on_hidden)}) {
      put(out, static_cast<std::uint8_t>(wanted));
    }
    put(out, prefill.slices.number);
  });
}

bool RankedCalls::has_slices(const Prefill::Impl& prefill) const {
  const auto own = static_cast<std::uint64_t>(prefill.pass->n_sweeps());
  const auto all = pipeline_.gather(std::as_bytes(std::span(&own, 1)));
  return own > 0 && std::all_of(all.begin(), all.end(), [&](const std::vector<std::byte>& message) {
           return numbers_in<std::uint64_t>(message).at(0) == own;
         });
}

void RankedCalls::step_prefill(Prefill::Impl& prefill, const std::function<bool(bool more)>& advanced) {
  pipeline_.together([&] {
    const bool is_first = !prefill.slices.is_told;
    tell_prefill(prefill);
    if (is_first) prefill.slices.is_sliced = has_slices(prefill);
    // A rank that leads can stop after a slice, which all do alike; otherwise one rank alone knows that it stops.
    const bool stops_after_slice = leader_.leads() && prefill.slices.is_sliced;
    run_slice(prefill, [&](bool more) {
      if (!advanced(more) && !stops_after_slice) throw Error(ErrorCode::kCancelled, "the prefill was stopped");
    });
  });
}

void RankedCalls::run_slice(Prefill::Impl& prefill, const std::function<void(bool more)>& advanced) {
  const auto advance = [&] {
    const bool more = prefill.advance();
    advanced(more);
    return more;
  };
  if (!prefill.slices.is_sliced) {
    while (advance()) {
    }
    return;
  }
  if (!prefill.pass) prefill.begin_pass();
  const ForwardPass& pass = *prefill.pass;
  if (!pass.is_at_suffixes()) {
    do {
      advance();
    } while (!pass.is_through() && !pass.is_at_sweep());
    if (pass.is_at_suffixes()) return;
  } else {
    // The suffixes go through one layer of all ranks at a time: its holder runs it, and the others do nothing.
    int& layer = prefill.slices.layer;
    while (!pass.is_through() && pass.layer() <= layer) advance();
    prefill.receive_layers_before(layer + 1);  // no message is on the way between two slices
    if (++layer < prefill.engine_impl().model->impl().spec.n_layer()) return advanced(true);
    layer = 0;
  }
  if (pass.is_through()) advance();
}

void RankedCalls::tell_step(LedCall call, std::span<Session* const> sessions, std::span<const Token> tokens) {
  leader_.tell(call, [&](std::ostream& out) {
    std::vector<std::uint64_t> numbers;
    for (const Session* session : sessions) numbers.push_back(session->impl().number);
    put_array(out, std::span<const std::uint64_t>(numbers));
    put_array(out, tokens);
  });
}

void RankedCalls::decode(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  tell_step(LedCall::kDecode, sessions, tokens);
  pipeline_.together([&] { EngineCalls::decode(engine, sessions, tokens); });
}

void RankedCalls::start_step(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  tell_step(LedCall::kStartStep, sessions, tokens);
  pipeline_.together([&] { EngineCalls::start_step(engine, sessions, tokens); });
}

void RankedCalls::finish_step(Engine::Impl& engine) {
  leader_.tell(LedCall::kFinishStep);
  pipeline_.together([&] { EngineCalls::finish_step(engine); });
}

std::vector<RankMemory> RankedCalls::memory(const RankMemory& own) {
  leader_.tell(LedCall::kMemory);
  return pipeline_.together([&] {
    std::vector<RankMemory> all;
    for (const std::vector<std::byte>& message : pipeline_.gather(std::as_bytes(std::span(&own, 1)))) {
      all.push_back(numbers_in<RankMemory>(message).at(0));
    }
    return all;
  });
}

void RankedCalls::rest(Engine::Impl& engine) {
  EngineCalls::rest(engine);
  leader_.tell(LedCall::kRest);
}

}  // namespace winnow
