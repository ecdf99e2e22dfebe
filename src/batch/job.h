// The state of a request in the batch, and the memory it reserves. Only the batch's thread uses it once it is
// submitted.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "batch/prefix_files.h"
#include "batch/prefix_tree.h"
#include "winnow/batch.h"
#include "winnow/embedding.h"

namespace winnow {

using BatchClock = std::chrono::steady_clock;

inline double seconds_between(BatchClock::time_point from, BatchClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct BatchAnswer {
  int index;
  Session session;
  Sampler sampler;
  Token next = 0;  // sampled last; the next step feeds it
  std::int32_t n_tokens = 0;
  bool is_stepping = false;  // a step with it is under way
};

// The bytes that admission reserves before a request may start.
struct MemoryNeeds {
  std::size_t context = 0;  // for the prefill of the context; 0 if there is none or it is cached
  std::size_t own = 0;      // for everything else
};

struct BatchJob {
  std::uint64_t id = 0;
  BatchRequest request;
  BatchCallbacks callbacks;
  BatchResult result;
  BatchClock::time_point submitted, admitted, first_token;
  MemoryNeeds needs;
  std::size_t bytes_reserved = 0;          // without what its prefix has reserved
  std::vector<Token> tokens;               // context and prompt
  std::string key;                         // only prefixes of the same key can be hits (prefix_key.h)
  PrefixPointer prefix;                    // the prefix that it was forked from, or whose prefill it awaits; null: none
  std::int32_t n_cached_tokens = 0;        // tokens of `prefix` that are not read again
  std::int32_t snapshot_at = 0;            // its prefill pauses after so many tokens and keeps a fork there; 0: nowhere
  std::optional<Session> session;          // until the first token is sampled
  std::vector<Sampler> samplers;           // [n_answers] until the first token is sampled
  std::optional<Error> sampling_error;     // why the samplers could not be made
  std::optional<EmbeddingPool> embedding;  // set for a request for an embedding
  // Files with prefixes of its context, the longest first; nullopt: the folder has not been searched yet.
  std::optional<std::vector<SavedPrefix>> saved_prefixes;
  std::vector<std::unique_ptr<BatchAnswer>> answers;  // those being decoded
  bool has_finished_answer = false;
};

// The waiting requests, first come, first served.
using JobQueue = std::deque<std::unique_ptr<BatchJob>>;
// The running requests, in the order of their admission.
using JobList = std::list<std::unique_ptr<BatchJob>>;

}  // namespace winnow
