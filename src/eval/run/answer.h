// A line of the results: what one method made of one question.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "eval/run/work_item.h"

namespace winnow::eval {

struct AnswerKey {
  std::string benchmark, task, id;
  int turn = 0;
  std::string question;  // "aware", "agnostic"
  std::string method, budget;

  auto operator<=>(const AnswerKey&) const = default;
};

// Teacher-forced continuation, means over its tokens.
struct Fidelity {
  double kl = 0;        // KL(full || cut), nats
  double top1 = 0;      // share of the tokens after which both expect the same one
  double full_nll = 0;  // of the full cache on the same tokens, nats
};

struct Answer {
  AnswerKey key;
  std::string error;  // why there is no answer; all below is then empty
  std::string text;
  std::optional<double> score;      // [0, 1]
  std::optional<bool> has_keyword;  // where the turn has one
  std::optional<double> nll;        // of the reference (or the continuation), nats per token
  int nll_tokens = 0;
  std::optional<Fidelity> fidelity;
  int prompt_tokens = 0;  // of the part that is cut
  int answer_tokens = 0;
  bool is_truncated = false;                        // the middle of the prompt was left out
  bool is_whole = false;                            // the budget was no smaller than the prompt: nothing was cut
  std::int64_t entries_full = 0, entries_kept = 0;  // after the cut, before question and answer
  std::uint64_t bytes_full = 0, bytes_kept = 0;
  std::optional<std::uint64_t> bytes_peak;  // pages and staging; only of sequences that ran alone
  int n_together = 1;                       // sequences that shared the prefill and the steps of decoding
  double prefill_s = 0;                     // of all of them together
  double evict_s = 0;                       // of this one
  double decode_s = 0;                      // of the steps that it was in
};

nlohmann::json to_json(const Answer& answer);
// Throws nlohmann::json::exception for what is not an answer.
Answer answer_from_json(const nlohmann::json& json);

// What the report shows of a sample's turn, written once per sample.
nlohmann::json sample_to_json(const WorkItem& item);

// `text` with U+FFFD for every byte that is not UTF-8.
std::string valid_utf8(const std::string& text);

}  // namespace winnow::eval
