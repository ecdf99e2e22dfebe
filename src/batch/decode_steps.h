// Steps of decoding: one token for each answer, sampled, reported and fed, until the answer ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "batch/job.h"
#include "batch/scheduler.h"

namespace winnow {

// The answers of one step. They may end, with their jobs, while the step is under way.
struct AnswerInStep {
  std::uint64_t job_id;
  BatchAnswer* answer;
};
using AnswersInStep = std::vector<AnswerInStep>;

// Only the batch's thread calls it.
class DecodeSteps {
 public:
  DecodeSteps(Engine& engine, Scheduler& scheduler) : engine_(engine), scheduler_(scheduler) {}

  // Samples the first tokens of a job whose prompt has been read.
  void start_answers(BatchJob& job);
  // Computes one step for all answers; over ranks, one for each of the groups that they take in turn. Returns its
  // seconds.
  double step();
  // Finishes the steps under way.
  void finish_all();

 private:
  // Over ranks: starts steps for these answers until every rank has one, and finishes the step that was started first.
  void step_in_turn(const AnswersInStep& ready);
  void finish_step();
  enum class Feed { kWhole, kStart };  // a whole step, or only its start, over ranks
  void feed(const AnswersInStep& batch, Feed feeding);
  // Samples the next tokens of the answers that have not ended.
  void sample_all(const AnswersInStep& batch, const std::vector<CutError::Failure>& failures = {});
  // Samples an answer's next token and reports it; ends the answer where it is over. Returns false if the job is gone.
  bool sample(BatchJob& job, BatchAnswer& answer);
  bool finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason);

  Engine& engine_;
  Scheduler& scheduler_;
  std::deque<AnswersInStep> steps_;  // under way, over ranks
};

}  // namespace winnow
