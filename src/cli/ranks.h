// A run over several machines, or ranks: all of them run the tool with the same arguments. Rank 0 does what the command
// says, and the others follow its engine (cli/model_flags.h); of bench, all of them do it, and rank 0 speaks.
#pragma once

#include <cstdint>
#include <memory>

#include "winnow/pipeline.h"

namespace winnow::cli {

// The ranks from here on. null: this process alone, as before the first call.
void set_ranks(std::shared_ptr<PipelineLink> link);
const std::shared_ptr<PipelineLink>& ranks();

// Whether this process prints and writes files.
bool speaks();

// The smallest of all ranks' numbers, on every rank.
std::uint64_t least_of_ranks(std::uint64_t number);

}  // namespace winnow::cli
