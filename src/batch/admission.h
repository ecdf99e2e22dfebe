// Admission: what is wrong with a request, how much memory it needs, and whether it can ever fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "batch/job.h"

namespace winnow {

// The cached prefix that a request is forked from.
struct PrefixHit {
  std::int32_t n_tokens = 0;
  std::size_t page_bytes = 0;  // a later cut may have to copy so much of its pages
};

// Returns whether the client asked for the probabilities of the prompt's tokens.
inline bool scores_prompt(const BatchRequest& request) { return request.n_prompt_probabilities >= 0; }

// Makes the request's samplers. Parsing its grammar may take a while, so the thread that submits the request does this,
// not the one that decodes.
void make_samplers(BatchJob& job, const Engine& engine, const BatchOptions& options);

// Checks a request, completes its options (context length, answer length) and fills the job's needs. Throws what is
// wrong with the request, and Error(kInvalidArgument) for one that cannot fit the engine's limit, with the budget that
// would.
void check_job(BatchJob& job, Engine& engine, const BatchOptions& options);

// Returns what a checked request needs after a prefix-cache hit.
MemoryNeeds needs_after(const BatchRequest& request, Engine& engine, const PrefixHit& hit);

// Returns the bytes that a session holds besides its pages: its method's saved queries, recurrent states and logits.
std::size_t state_bytes(const ModelInfo& model, const SessionOptions& options);

// Returns the bytes to reserve while a session with these options is loaded from a file of file_bytes.
std::size_t loading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t file_bytes);

}  // namespace winnow
