#include "batch/decode_steps.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "batch/request_failure.h"
#include "batch/scored_token.h"
#include "engine/engine_impl.h"
#include "engine/steps_in_turn.h"

namespace winnow {

void DecodeSteps::start_answers(BatchJob& job) {
  job.result.cache = job.session->statistics();
  job.first_token = BatchClock::now();
  job.result.prefill_s = seconds_between(job.admitted, job.first_token);
  const std::span<const Token> tokens = job.session->tokens();
  const std::span<const Token> looked_back = tokens.last(job.request.sampling.n_looked_back(tokens.size()));
  for (int i = 0; i < job.request.n_answers; ++i) {
    const bool is_last = i + 1 == job.request.n_answers;
    Sampler sampler = std::move(job.samplers[static_cast<std::size_t>(i)]);
    for (const Token token : looked_back) sampler.accept(token);
    job.answers.push_back(
        std::make_unique<BatchAnswer>(BatchAnswer{.index = i,
                                                  .session = is_last ? std::move(*job.session) : job.session->fork(),
                                                  .sampler = std::move(sampler)}));
  }
  job.session.reset();
  job.samplers.clear();
  std::vector<BatchAnswer*> answers;
  for (const std::unique_ptr<BatchAnswer>& answer : job.answers) answers.push_back(answer.get());
  for (BatchAnswer* answer : answers) {
    if (!sample(job, *answer)) return;
  }
}

double DecodeSteps::step() {
  AnswersInStep batch;
  for (const std::unique_ptr<BatchJob>& job : scheduler_.running()) {
    for (const std::unique_ptr<BatchAnswer>& answer : job->answers) {
      if (!answer->is_stepping) batch.push_back({job->id, answer.get()});
    }
  }
  if (batch.empty() && steps_.empty()) {
    engine_.impl().release_step();  // the requests that had reserved this memory are over
    return 0;
  }
  const auto start = BatchClock::now();
  if (n_steps_at_once(engine_) > 1) {
    step_in_turn(batch);
  } else {
    ++scheduler_.totals().steps;
    feed(batch, Feed::kWhole);
  }
  const double seconds = seconds_between(start, BatchClock::now());
  scheduler_.totals().decode_s += seconds;
  return seconds;
}

void DecodeSteps::step_in_turn(const AnswersInStep& ready) {
  const auto n_steps = static_cast<std::size_t>(n_steps_at_once(engine_));
  std::size_t n_answers = ready.size();
  for (const AnswersInStep& step : steps_) n_answers += step.size();
  // Groups of one size keep the ranks equally busy, so answers change groups as others come and go.
  const std::size_t size = (n_answers + n_steps - 1) / n_steps;
  for (std::size_t first = 0; first < ready.size() && steps_.size() < n_steps; first += size) {
    AnswersInStep group;
    for (std::size_t i = first; i < std::min(first + size, ready.size()); ++i) {
      // An earlier group's failure may have ended this answer with its job.
      if (scheduler_.find_running(ready[i].job_id) != nullptr) group.push_back(ready[i]);
    }
    if (!group.empty()) feed(group, Feed::kStart);
  }
  if (!steps_.empty()) finish_step();
  // Once no running job has answers, the remaining steps are finished before another request comes.
  const auto is_idle = [](const std::unique_ptr<BatchJob>& job) { return job->answers.empty(); };
  while (!steps_.empty() && std::ranges::all_of(scheduler_.running(), is_idle)) finish_step();
}

void DecodeSteps::finish_step() {
  const AnswersInStep batch = std::move(steps_.front());
  steps_.pop_front();
  winnow::finish_step(engine_);
  ++scheduler_.totals().steps;
  sample_all(batch);
}

void DecodeSteps::finish_all() {
  while (!steps_.empty()) finish_step();
}

void DecodeSteps::feed(const AnswersInStep& batch, Feed feeding) {
  std::vector<Session*> sessions;
  std::vector<Token> tokens;
  for (const AnswerInStep& one : batch) {
    sessions.push_back(&one.answer->session);
    tokens.push_back(one.answer->next);
  }
  std::vector<CutError::Failure> failures;
  try {
    if (feeding == Feed::kStart) {
      winnow::start_step(engine_, sessions, tokens);
    } else {
      engine_.decode(sessions, tokens);
    }
  } catch (const CutError& error) {
    failures = error.failures;
  } catch (const PipelineError&) {
    throw;
  } catch (...) {
    // A failed step has changed no session. Repeated for one answer at a time, it fails only those that cause the
    // error.
    if (batch.size() > 1) {
      for (const AnswerInStep& one : batch) {
        // An earlier one's failure may have ended this one with its job.
        if (scheduler_.find_running(one.job_id) != nullptr) feed({one}, feeding);
      }
      return;
    }
    const auto [code, message] = failure_in_flight();
    scheduler_.fail(*scheduler_.find_running(batch[0].job_id), code, message);
    return;
  }
  if (feeding == Feed::kWhole) return sample_all(batch, failures);
  for (const AnswerInStep& one : batch) one.answer->is_stepping = true;
  steps_.push_back(batch);
}

void DecodeSteps::sample_all(const AnswersInStep& batch, const std::vector<CutError::Failure>& failures) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    BatchJob* job = scheduler_.find_running(batch[i].job_id);
    if (job == nullptr) continue;
    batch[i].answer->is_stepping = false;
    const auto failure = std::find_if(failures.begin(), failures.end(), [&](const auto& f) { return f.session == i; });
    if (failure == failures.end()) {
      sample(*job, *batch[i].answer);
    } else {
      scheduler_.fail(*job, failure->code, failure->message);
    }
  }
}

bool DecodeSteps::sample(BatchJob& job, BatchAnswer& answer) {
  const BatchRequest& request = job.request;
  if (!request.has_answer) return finish_answer(job, answer, FinishReason::kLength);
  BatchToken chosen{.answer = answer.index, .log_probability = std::numeric_limits<float>::quiet_NaN()};
  bool is_wanted = true, is_end = false;
  try {
    const std::span<const float> logits = answer.session.logits();
    chosen.token = answer.sampler.sample(logits);
    is_end = !request.ignore_end && engine_.model()->is_end_of_generation(chosen.token);
    if (!is_end) {
      if (request.n_probabilities >= 0) {
        chosen = scored_token(*engine_.model(), answer.index, chosen.token, logits, request.n_probabilities);
      }
      answer.next = chosen.token;
      ++answer.n_tokens;
      ++job.result.answer_tokens;
      ++scheduler_.totals().answer_tokens;
      is_wanted = !job.callbacks.on_token || job.callbacks.on_token(chosen);
    }
  } catch (...) {
    const auto [code, message] = failure_in_flight();
    scheduler_.fail(job, code, message);
    return false;
  }
  if (is_end) return finish_answer(job, answer, FinishReason::kEndOfText);
  if (!is_wanted) return finish_answer(job, answer, FinishReason::kStopped);
  if (answer.n_tokens >= request.max_tokens) return finish_answer(job, answer, FinishReason::kLength);
  return true;
}

bool DecodeSteps::finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason) {
  const int index = answer.index;
  scheduler_.cache().keep_answer(job, std::move(answer.session));
  if (!job.has_finished_answer || index == 0) job.result.reason = reason;
  job.has_finished_answer = true;
  std::erase_if(job.answers, [&](const std::unique_ptr<BatchAnswer>& other) { return other.get() == &answer; });
  scheduler_.note_change();
  scheduler_.notify([&] {
    if (job.callbacks.on_finish) job.callbacks.on_finish(index, reason);
  });
  if (!job.answers.empty()) return true;
  scheduler_.finish(job, job.result.reason);
  return false;
}

}  // namespace winnow
