// The folder of a run: what it is (run.json), its samples, and the answers, a line each, as they come.
//
//   run.json                  the configuration; a folder holds one run
//   samples-1-of-4.jsonl      what the report shows of the samples of a shard
//   answers-1-of-4.jsonl      appended to; every line is on the disk before the next sample begins
//
// A process that dies may leave the last line torn: it is dropped when the run is resumed. Several processes may write
// different shards of one folder at the same time.
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
    kResume,  // an error where there is no run yet
  };

  // Makes the folder, or checks that it holds the run of this configuration. `defaults` are settings that a resumed run
  // takes from where it began unless `configuration` has them too. Throws Error(kInvalidArgument) for a folder of
  // another run and one that holds other things, kNotFound for kResume without a run, kIo.
  ResultStore(const std::string& folder, const nlohmann::json& configuration, const nlohmann::json& defaults,
              const Shard& shard, Start start = Start::kNewOrResume);
  ~ResultStore();
  // Whether the folder holds a run already.
  static bool is_there(const std::string& folder);
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  // `configuration` and `defaults` as the run has them.
  const nlohmann::json& configuration() const { return configuration_; }

  // Replaces the shard's list of samples. Throws Error(kIo).
  void write_samples(std::span<const WorkItem* const> items) const;

  // Whether any shard has an answer to it; failed ones count unless forget_failures was called.
  bool has(const AnswerKey& key) const { return done_.contains(key); }
  std::size_t n_done() const { return done_.size(); }
  void forget_failures();

  // One write; on the disk when it returns. Throws Error(kIo).
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

// The entry types of a run's configuration; f16 where it has none.
EntryTypes types_of(const nlohmann::json& configuration);

// In the configuration of a fidelity of quantised caches: the types of the full cache that it is the distance from.
inline constexpr const char* kReferenceTypes = "reference_types";

// A folder's answers of all shards: the last of several to the same key counts. `on_sample` gets the lines of the
// samples files. Throws Error(kNotFound) for a folder without run.json, kBadFile naming file and line.
struct StoredRun {
  nlohmann::json configuration;
  std::map<AnswerKey, Answer> answers;
  std::vector<nlohmann::json> samples;
};
StoredRun read_run(const std::string& folder);

}  // namespace winnow::eval
