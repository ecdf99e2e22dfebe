// A run over several machines, or ranks: all of them run the tool with the same arguments. Rank 0 runs the command, and
// the others follow its engine (cli/model_flags.h); bench runs on all of them, and rank 0 prints.
#pragma once

#include <cstdint>
#include <memory>

#include "winnow/pipeline.h"

namespace winnow::cli {

// Sets the ranks. null: this process alone, as before the first call.
void set_ranks(std::shared_ptr<PipelineLink> link);
const std::shared_ptr<PipelineLink>& ranks();

// Returns true if this process prints and writes files.
bool speaks();

// Returns the smallest of all ranks' numbers, on every rank.
std::uint64_t least_of_ranks(std::uint64_t number);

}  // namespace winnow::cli
