// A line of the results: the answer of one method at one budget to one question.
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

// The types in which a cache stores its entries: entry_type_name of keys and of values.
struct EntryTypes {
  std::string key = "f16", value = "f16";

  auto operator<=>(const EntryTypes&) const = default;
  std::string text() const { return key == value ? key : key + "/" + value; }  // "f16", "q8_0/q4_0"
};
EntryTypes entry_types(EntryType key, EntryType value);

// Returns the type in which the full cache that fidelity compares with stores its keys or values, if the other cache
// stores them as `type`: f32 if that is f32, else f16. The distance includes the cost of quantisation.
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

// Fidelity on a teacher-forced continuation, or on the full cache's answer; means over its tokens.
struct Fidelity {
  double kl = 0;        // KL(full || cut), nats; full: the reference, see reference_type
  double top1 = 0;      // share of the tokens after which both predict the same one
  double full_nll = 0;  // NLL of the reference on the same tokens, nats
};

struct Answer {
  AnswerKey key;
  std::string error;                // why there is no answer; the fields below are then not set
  std::string text;                 // the answer; where one is forced: the full cache's
  std::optional<double> score;      // [0, 1]
  std::optional<bool> has_keyword;  // not set if the turn has no keyword
  std::optional<double> nll;        // NLL of the reference (or of the forced tokens), nats per token
  int nll_tokens = 0;
  std::optional<Fidelity> fidelity;
  int prompt_tokens = 0;  // tokens of the part that is cut
  int answer_tokens = 0;
  bool is_truncated = false;                        // the middle of the prompt was left out
  bool is_whole = false;                            // the budget was no smaller than the prompt, so nothing was cut
  std::int64_t entries_full = 0, entries_kept = 0;  // after the cut, before question and answer
  std::uint64_t bytes_full = 0, bytes_kept = 0;
  std::optional<std::string> budget_taken;  // for a budget that is a loss: the budget that it led to
  std::optional<double> kl_expected;        // loss expected of budget_taken, nats per token
  std::optional<std::uint64_t> bytes_peak;  // bytes of pages and staging; only of sequences that ran alone
  int n_together = 1;                       // sequences that shared the prefill and the decode steps
  double prefill_s = 0;                     // prefill of all of them together
  double evict_s = 0;                       // eviction of this one
  double decode_s = 0;                      // decode steps that it took part in
};

nlohmann::json to_json(const Answer& answer);
// Reads a line. `types` are those of a line that does not have its own (they were once in run.json alone). Throws
// nlohmann::json::exception if it is not an answer.
Answer answer_from_json(const nlohmann::json& json, const EntryTypes& types = {});

// The field of a sample's line with a digest of its prompts and of what judges its answers, which tells samples of one
// name apart. Lines of earlier versions have none.
inline constexpr const char* kSampleDigest = "digest";

// Returns the parts of a sample that the report shows, and its digest, written once per sample.
nlohmann::json sample_to_json(const WorkItem& item);

}  // namespace winnow::eval
