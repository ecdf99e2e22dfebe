// The folder of a run: its configuration (run.json), its samples, and the answers, a line each, written as they come.
//
//   run.json                  the configuration; a folder holds one run
//   samples-1-of-4.jsonl      the parts of a shard's samples that the report shows
//   answers-1-of-4.jsonl      appended to; every line is on the disk before the next sample begins
//
// If a process dies, the last line may be incomplete; it is dropped when the run is resumed. Several processes may
// write different shards of one folder at the same time.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "eval/run/answer.h"
#include "eval/run/matrix.h"

namespace winnow::eval {

class ResultStore {
 public:
  enum class Start {
    kNewOrResume,
    kResume,  // an error if there is no run yet
  };

  // Makes the folder, or checks that it holds the run of this configuration. `defaults` are settings of a new run; a
  // resumed run keeps those that it began with unless `configuration` sets them, too. Throws Error(kInvalidArgument)
  // for a folder of another run or with other files, or if another process writes the shard, kNotFound for kResume
  // without a run, kBadFile, kIo.
  ResultStore(const std::string& folder, const nlohmann::json& configuration, const nlohmann::json& defaults,
              const Shard& shard, Start start = Start::kNewOrResume);
  ~ResultStore();
  // Returns true if the folder holds a run already.
  static bool is_there(const std::string& folder);
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  // Returns the configuration of the run, with its `defaults`.
  const nlohmann::json& configuration() const { return configuration_; }

  // Replaces the shard's list of samples. Throws Error(kIo).
  void write_samples(std::span<const WorkItem* const> items) const;

  // Returns true if any shard has an answer for the key; failed ones count unless forget_failures was called.
  bool has(const AnswerKey& key) const { return done_.contains(key); }
  std::size_t n_done() const { return done_.size(); }
  void forget_failures();

  // Appends an answer in one write; it is on the disk when this returns. Throws Error(kIo).
  void append(const Answer& answer);

 private:
  void load_or_write_configuration(const nlohmann::json& configuration, const nlohmann::json& defaults, Start start);
  void open_answers();
  void read_answers();

  std::string folder_, answers_path_, shard_name_;
  nlohmann::json configuration_;
  std::set<AnswerKey> done_, failed_;
  int descriptor_ = -1;
};

// Returns the entry types of a run's configuration; f16 if it has none.
EntryTypes types_of(const nlohmann::json& configuration);

// The field of the configuration with the types of the full cache that fidelity of quantised caches compares with.
inline constexpr const char* kReferenceTypes = "reference_types";

// Fields of the configuration that runs of earlier versions lack; these go on without them: the fingerprint of the
// model's metadata, what finds Chinese words if any answer is scored by them, and a digest of the classes if there are
// any.
inline constexpr const char *kModelMetadata = "model_metadata", *kChineseWords = "chinese_words",
                            *kClassesDigest = "classes_digest";

// The content of a run's folder: the answers and samples of all shards.
struct StoredRun {
  nlohmann::json configuration;
  std::map<AnswerKey, Answer> answers;
  std::vector<nlohmann::json> samples;
};
// Adds an answer to those that came before it. Of several with the same key the last one that did not fail counts.
void add_answer(std::map<AnswerKey, Answer>& answers, Answer answer);

// Reads a folder. Throws Error(kNotFound) for a folder without run.json, kBadFile naming file and line.
StoredRun read_run(const std::string& folder);

}  // namespace winnow::eval
