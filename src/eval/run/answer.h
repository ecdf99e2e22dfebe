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
#include "winnow/entry_type.h"

namespace winnow::eval {

// How a cache's entries are stored: entry_type_name of keys and of values.
struct EntryTypes {
  std::string key = "f16", value = "f16";

  auto operator<=>(const EntryTypes&) const = default;
  std::string text() const { return key == value ? key : key + "/" + value; }  // "f16", "q8_0/q4_0"
};
EntryTypes entry_types(EntryType key, EntryType value);

// How the full cache that fidelity compares with stores its keys, or values, beside a cache that stores them so: in
// f16, or in f32 where the other does. What quantising costs is part of the distance.
EntryType reference_type(EntryType type);
EntryTypes reference_types(const EntryTypes& types);

struct AnswerKey {
  std::string benchmark, task, id;
  int turn = 0;
  std::string question;  // "aware", "agnostic"
  std::string method, budget;
  EntryTypes types = {};

  auto operator<=>(const AnswerKey&) const = default;
};

// Teacher-forced continuation, or answer of the full cache; means over its tokens.
struct Fidelity {
  double kl = 0;        // KL(full || cut), nats; full: the reference, see reference_type
  double top1 = 0;      // share of the tokens after which both expect the same one
  double full_nll = 0;  // of the reference on the same tokens, nats
};

struct Answer {
  AnswerKey key;
  std::string error;                // why there is no answer; all below is then empty
  std::string text;                 // where an answer is forced: that answer, the full cache's
  std::optional<double> score;      // [0, 1]
  std::optional<bool> has_keyword;  // where the turn has one
  std::optional<double> nll;        // of the reference (or of what is forced), nats per token
  int nll_tokens = 0;
  std::optional<Fidelity> fidelity;
  int prompt_tokens = 0;  // of the part that is cut
  int answer_tokens = 0;
  bool is_truncated = false;                        // the middle of the prompt was left out
  bool is_whole = false;                            // the budget was no smaller than the prompt: nothing was cut
  std::int64_t entries_full = 0, entries_kept = 0;  // after the cut, before question and answer
  std::uint64_t bytes_full = 0, bytes_kept = 0;
  std::optional<std::string> budget_taken;  // of a budget of a loss, and what that was expected to cost
  std::optional<double> kl_expected;        // nats a token
  std::optional<std::uint64_t> bytes_peak;  // pages and staging; only of sequences that ran alone
  int n_together = 1;                       // sequences that shared the prefill and the steps of decoding
  double prefill_s = 0;                     // of all of them together
  double evict_s = 0;                       // of this one
  double decode_s = 0;                      // of the steps that it was in
};

nlohmann::json to_json(const Answer& answer);
// `types`: of a line that does not say its own (they once stood in run.json alone). Throws nlohmann::json::exception
// for what is not an answer.
Answer answer_from_json(const nlohmann::json& json, const EntryTypes& types = {});

// What the report shows of a sample's turn, written once per sample.
nlohmann::json sample_to_json(const WorkItem& item);

}  // namespace winnow::eval
