// A run over several machines, or ranks: all of them run the tool with the same arguments, and rank 0 speaks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "winnow/pipeline.h"
#include "winnow/session.h"

namespace winnow::cli {

// The ranks from here on. null: this process alone, as before the first call.
void set_ranks(std::shared_ptr<PipelineLink> link);
const std::shared_ptr<PipelineLink>& ranks();

// Whether this process prints and writes files.
bool speaks();

// Rank 0's number or text, on every rank; others' own is not looked at. Alone: what is given.
std::uint32_t of_first_rank(std::uint32_t number);
std::string of_first_rank(const std::string& text);

struct RankMemory {
  std::int32_t first_layer = 0, last_layer = 0;  // it holds those from the first up to before the last
  std::uint64_t rss_peak_bytes = 0, kv_bytes_peak = 0;
};
// Of every rank; empty for a process alone.
std::vector<RankMemory> memory_of_ranks(const Engine& engine);

}  // namespace winnow::cli
