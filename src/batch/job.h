// A request on its way through the batch. Used by the batch's thread only.
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
  Token next = 0;  // chosen, not fed yet
  std::int32_t n_tokens = 0;
  bool is_stepping = false;  // in a step that is under way
};

// What has to be promised before a request may start, in bytes.
struct BatchNeeds {
  std::size_t context = 0;  // while the context is read; 0 without one, and where it is kept
  std::size_t own = 0;      // everything else
};

struct BatchJob {
  std::uint64_t id = 0;
  BatchRequest request;
  BatchCallbacks callbacks;
  BatchResult result;
  BatchClock::time_point submitted, admitted, first_token;
  BatchNeeds needs;
  std::size_t promised = 0;                           // without what is kept
  std::vector<Token> tokens;                          // context and prompt
  std::string key;                                    // of what it may begin with
  PrefixPointer origin;                               // what it begins with, or waits for; null: nothing
  std::int32_t n_begun = 0;                           // tokens of that
  std::optional<std::vector<SavedBeginning>> saved;   // of its context, in the folder; nothing: not looked for yet
  std::int32_t mark = 0;                              // tokens after which a copy is kept on the way; 0: none
  std::optional<Session> session;                     // until the first token
  std::vector<Sampler> samplers;                      // one for each answer, until the first token
  std::optional<EmbeddingPool> embedding;             // of a request for one
  std::optional<Error> sampling_error;                // where they could not be made
  std::vector<std::unique_ptr<BatchAnswer>> answers;  // under way
  bool has_finished_answer = false;
};

// Something that is read in slices: a context, or a request's own part.
struct BatchReading {
  PrefixPointer context;    // either this
  BatchJob* job = nullptr;  // or this
  Prefill prefill;
  std::int32_t n_tokens = 0;
  BatchClock::time_point begun = BatchClock::now(), told = begun;
};

// What a request begins with, of which nothing is read again.
struct BatchBeginning {
  std::int32_t n_tokens = 0;
  std::size_t page_bytes = 0;  // of it, which a later cut may have to write anew
};

// Returns whether the probabilities of the prompt's tokens are wanted.
inline bool scores_prompt(const BatchRequest& request) { return request.n_prompt_probabilities >= 0; }

// A token with its probability and the n likeliest ones by the logits [n_vocab] before it; empty: there are none.
BatchToken scored_token(int answer, Token token, std::span<const float> logits, int n);

// Reads the request's grammar, which may take a while: on the thread that submits it, not on the one that decodes.
void make_samplers(BatchJob& job, const Engine& engine, const BatchOptions& options);

// Throws what is wrong with the request; completes its options (context length, answer length) and fills needs.
// Throws Error(kInvalidArgument) for one that cannot fit the engine's limit, with the budget that would.
void check_job(BatchJob& job, Engine& engine, const BatchOptions& options);

// What has to be promised while a session with these options is loaded from a file of so many bytes.
std::size_t loading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t file_bytes);

// What a checked request needs behind such a beginning.
BatchNeeds needs_behind(const BatchRequest& request, Engine& engine, const BatchBeginning& beginning);

}  // namespace winnow
