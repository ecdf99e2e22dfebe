// Tokens appended to what a session holds: a turn, kept whole or followed by a cut; or a first prompt in chunks, each
// followed by a cut.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cache/entry_sink.h"
#include "engine/prefill/prefill_impl.h"

namespace winnow {

// Feeds tokens at the end of one session's sequence.
class AppendPrefill final : public Prefill::Impl {
 public:
  // Feeds the tokens in chunks of n_chunk. After each chunk everything is cut to cut_total entries; nullopt: all is
  // kept. Throws what Session::Impl::check_tokens throws.
  AppendPrefill(std::shared_ptr<Engine> engine, Session::Impl& session, std::span<const Token> tokens,
                const PrefillOptions& callbacks, std::optional<std::int64_t> cut_total, std::size_t n_chunk);
  ~AppendPrefill() override;

  void begin_pass() override;
  void end_layer(int layer) override;
  bool end_pass() override;
  bool undo() override;

 private:
  std::span<const Token> chunk() const;  // the chunk that is under way

  Session::Impl& session_;
  const std::optional<std::int64_t> cut_total_;
  const std::size_t n_chunk_;
  const std::int32_t n_before_;  // tokens that the session held before
  bool is_fed_ = false;          // a turn whose cut alone can still fail
  QueryEvidence before_;
  std::optional<RaggedCache> cache_before_;  // RaggedCache::fork_to_undo
  CacheSink sink_;
};

}  // namespace winnow
