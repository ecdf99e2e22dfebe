// A request on its way through the batch, and what it reserves. Only the batch's thread uses it once it was submitted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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
  Token next = 0;  // it was sampled, and is fed with the next step
  std::int32_t n_tokens = 0;
  bool is_stepping = false;  // a step with it is under way
};

// The bytes that admission reserves before a request may start.
struct MemoryNeeds {
  std::size_t context = 0;  // for the prefill of the context; 0 without one, and where it is cached
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
  PrefixPointer prefix;                    // it was forked from this prefix, or waits for its prefill; null: from none
  std::int32_t n_cached_tokens = 0;        // tokens of `prefix` that are not read again
  std::int32_t snapshot_at = 0;            // its prefill pauses after so many tokens and keeps a fork there; 0: nowhere
  std::optional<Session> session;          // until the first token is sampled
  std::vector<Sampler> samplers;           // [n_answers] until the first token is sampled
  std::optional<Error> sampling_error;     // why the samplers could not be made
  std::optional<EmbeddingPool> embedding;  // of a request for an embedding
  // Files with prefixes of its context, the longest first; nothing: the folder was not searched yet.
  std::optional<std::vector<SavedPrefix>> saved_prefixes;
  std::vector<std::unique_ptr<BatchAnswer>> answers;  // those being decoded
  bool has_finished_answer = false;
};

// The cached prefix that a request is forked from.
struct PrefixHit {
  std::int32_t n_tokens = 0;
  std::size_t page_bytes = 0;  // a later cut may have to copy so much of its pages
};

// Returns whether the client asked for the probabilities of the prompt's tokens.
inline bool scores_prompt(const BatchRequest& request) { return request.n_prompt_probabilities >= 0; }

// Returns a token with its log probability and the n likeliest ones by the logits [n_vocab] before it. Without logits
// the probability is NaN, and there are no likeliest ones.
BatchToken scored_token(int answer, Token token, std::span<const float> logits, int n);

// Makes the request's samplers. Parsing its grammar may take a while, so the thread that submits the request does this,
// not the one that decodes.
void make_samplers(BatchJob& job, const Engine& engine, const BatchOptions& options);

// Checks a request, completes its options (context length, answer length) and fills the job's needs. Throws what is
// wrong with the request, and Error(kInvalidArgument) for one that cannot fit the engine's limit, with the budget that
// would.
void check_job(BatchJob& job, Engine& engine, const BatchOptions& options);

// Returns the bytes to reserve while a session with these options is loaded from a file of file_bytes.
std::size_t loading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t file_bytes);

// Returns what a checked request needs after a prefix-cache hit.
MemoryNeeds needs_after(const BatchRequest& request, Engine& engine, const PrefixHit& hit);

}  // namespace winnow
