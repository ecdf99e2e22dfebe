// The report of a run: the JSON object of the tool's contract, and a few lines for a person.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "winnow/session.h"

namespace winnow::cli {

struct RunReport {
  std::string method = "full";  // text form
  std::string budget;           // text form, empty for the full cache
  std::string text;
  std::vector<Token> token_ids;  // generated tokens
  SessionStatistics statistics;
  double load_s = 0;  // model file to ready engine
  double ttft_s = 0;  // start of the prefill to the first sampled token
  std::size_t rss_peak_bytes = 0;
  std::vector<RankMemory> ranks;  // of a model that several ranks hold
};

std::string run_report_json(const RunReport& report);

// Returns "2 heads in 8 bits, ..." for n heads that a cut has raised (engine/raised_heads.h).
std::string raised_text(std::int64_t n);

// Returns {"n_tokens": N, "positions": [layer][KV head][position]}, the positions that the session holds.
std::string positions_json(const Session& session, const ModelInfo& model);

// Returns aligned lines of about 80 columns.
std::string run_report_text(const RunReport& report);

// Returns a line per layer with the kept entries of each KV head.
std::string kept_entries_text(const SessionStatistics& statistics);

}  // namespace winnow::cli
