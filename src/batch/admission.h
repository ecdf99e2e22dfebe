// Admission control: checks requests, and computes how much memory they need and whether they can ever fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "batch/job.h"

namespace winnow {

// The cached prefix that a request is forked from.
struct PrefixHit {
  std::int32_t n_tokens = 0;
  std::size_t page_bytes = 0;  // bytes of its pages, which a later cut may have to copy
};

// Returns whether the client asked for the probabilities of the prompt's tokens.
inline bool scores_prompt(const BatchRequest& request) { return request.n_prompt_probabilities >= 0; }

// Makes the job's samplers, or sets its sampling_error. The thread that submits the request calls this, not the batch's
// thread, since parsing a grammar may take a while.
void make_samplers(BatchJob& job, const Engine& engine, const BatchOptions& options);

// Checks a request, completes its options (context length, answer length) and fills the job's needs. Throws Error if
// the request is invalid, and Error(kInvalidArgument), which names the budget that would fit, if it cannot fit the
// engine's limit.
void check_job(BatchJob& job, Engine& engine, const BatchOptions& options);

// Returns what a checked request needs after a prefix-cache hit.
MemoryNeeds needs_after(const BatchRequest& request, Engine& engine, const PrefixHit& hit);

// Returns the bytes that a session holds besides its pages: its method's saved queries, recurrent states and logits.
std::size_t state_bytes(const ModelInfo& model, const SessionOptions& options);

// Returns the bytes to reserve while a session with these options is loaded from a file of file_bytes.
std::size_t loading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t file_bytes);

}  // namespace winnow
