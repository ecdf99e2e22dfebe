// Steps of decoding: one token for each answer, sampled, reported and fed, until the answer ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "batch/job.h"
#include "batch/scheduler.h"

namespace winnow {

// An answer in a step. It may end, with its job, while the step is under way.
struct AnswerInStep {
  std::uint64_t job_id;
  BatchAnswer* answer;
};
using AnswersInStep = std::vector<AnswerInStep>;

// Runs the decoding steps of the scheduler's answers. Only the batch's thread calls it.
class DecodeSteps {
 public:
  DecodeSteps(Engine& engine, Scheduler& scheduler) : engine_(engine), scheduler_(scheduler) {}

  // Samples the first tokens of a job whose prompt has been read.
  void start_answers(BatchJob& job);
  // Computes one step of all answers. With several ranks, it starts steps of groups of answers, which take turns, and
  // finishes the oldest step. Returns the seconds that it took.
  double step();
  // Finishes the steps under way.
  void finish_all();

 private:
  // With several ranks: starts steps of these answers until every rank has one, and finishes the oldest step.
  void step_in_turn(const AnswersInStep& ready);
  void finish_step();
  enum class Feed { kWhole, kStart };  // a whole step, or only its start (with several ranks)
  void feed(const AnswersInStep& batch, Feed feeding);
  // Samples the next tokens of the answers that have not ended.
  void sample_all(const AnswersInStep& batch, const std::vector<CutError::Failure>& failures = {});
  // Samples an answer's next token, reports it, and ends the answer if it is complete. Returns false if the job is
  // gone.
  bool sample(BatchJob& job, BatchAnswer& answer);
  bool finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason);

  Engine& engine_;
  Scheduler& scheduler_;
  std::deque<AnswersInStep> steps_;  // steps under way, with several ranks
};

}  // namespace winnow
