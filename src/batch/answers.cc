// Answers under way: a step for all of them, a choice for each, and how they end.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "batch/batch_impl.h"
#include "engine/engine_impl.h"
#include "engine/steps_in_turn.h"
#include "winnow/log_softmax.h"

namespace winnow {
namespace {

std::vector<TokenProbability> likeliest(std::span<const float> logits, float normaliser, int n) {
  std::vector<TokenProbability> all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) all[i] = {static_cast<Token>(i), logits[i] - normaliser};
  const auto middle = all.begin() + std::min<std::ptrdiff_t>(n, static_cast<std::ptrdiff_t>(all.size()));
  std::partial_sort(all.begin(), middle, all.end(),
                    [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
  all.erase(middle, all.end());
  return all;
}

}  // namespace

BatchToken scored_token(int answer, Token token, std::span<const float> logits, int n) {
  BatchToken scored{.answer = answer, .token = token, .log_probability = std::numeric_limits<float>::quiet_NaN()};
  if (logits.empty()) return scored;
  const auto normaliser = static_cast<float>(log_sum_exp(logits));
  scored.log_probability = logits[static_cast<std::size_t>(token)] - normaliser;
  if (n > 0) scored.top = likeliest(logits, normaliser, n);
  return scored;
}

void Batch::Impl::start_answers(BatchJob& job) {
  has_changed = true;
  job.result.cache = job.session->statistics();
  job.first_token = BatchClock::now();
  job.result.prefill_s = seconds_between(job.admitted, job.first_token);
  const std::vector<Token>& prompt = job.request.prompt;
  const auto n_remembered = std::min(prompt.size(), static_cast<std::size_t>(job.request.sampling.repeat_last_n));
  for (int i = 0; i < job.request.n_answers; ++i) {
    const bool is_last = i + 1 == job.request.n_answers;
    Sampler sampler = std::move(job.samplers[static_cast<std::size_t>(i)]);
    for (std::size_t t = prompt.size() - n_remembered; t < prompt.size(); ++t) sampler.accept(prompt[t]);
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
    if (!choose(job, *answer)) return;
  }
}

void Batch::Impl::finish_embedding(BatchJob& job) {
  job.result.cache = job.session->statistics();
  job.first_token = BatchClock::now();
  job.result.prefill_s = seconds_between(job.admitted, job.first_token);
  job.result.embedding = job.embedding->pooled();
  finish(job, FinishReason::kEndOfText);
}

double Batch::Impl::step() {
  AnswersInStep batch;
  for (const std::unique_ptr<BatchJob>& job : running) {
    for (const std::unique_ptr<BatchAnswer>& answer : job->answers) {
      if (!answer->is_stepping) batch.push_back({job->id, answer.get()});
    }
  }
  if (batch.empty() && steps.empty()) {
    engine->impl().release_step();
    return 0;
  }
  const auto start = BatchClock::now();
  if (n_steps_at_once(*engine) > 1) {
    step_in_turn(batch);
  } else {
    ++totals.steps;
    feed(batch, Feed::kWhole);
  }
  const double seconds = seconds_between(start, BatchClock::now());
  totals.decode_s += seconds;
  return seconds;
}

void Batch::Impl::step_in_turn(const AnswersInStep& waiting) {
  const auto n_steps = static_cast<std::size_t>(n_steps_at_once(*engine));
  std::size_t n_answers = waiting.size();
  for (const AnswersInStep& step : steps) n_answers += step.size();
  // Groups of one size keep the ranks equally busy: answers that come and go change groups.
  const std::size_t size = (n_answers + n_steps - 1) / n_steps;
  for (std::size_t first = 0; first < waiting.size() && steps.size() < n_steps; first += size) {
    AnswersInStep group;
    for (std::size_t i = first; i < std::min(first + size, waiting.size()); ++i) {
      // An earlier group's failure may have ended this one with its job.
      if (find_running(waiting[i].job_id) != nullptr) group.push_back(waiting[i]);
    }
    if (!group.empty()) feed(group, Feed::kStart);
  }
  if (!steps.empty()) finish_step();
  // Nobody waits for those that are left: they are not left to the next request.
  const auto is_idle = [](const std::unique_ptr<BatchJob>& job) { return job->answers.empty(); };
  while (!steps.empty() && std::all_of(running.begin(), running.end(), is_idle)) finish_step();
}

void Batch::Impl::finish_step() {
  const AnswersInStep batch = std::move(steps.front());
  steps.pop_front();
  winnow::finish_step(*engine);
  ++totals.steps;
  go_on(batch);
}

BatchJob* Batch::Impl::find_running(std::uint64_t id) const {
  const auto place =
      std::find_if(running.begin(), running.end(), [&](const std::unique_ptr<BatchJob>& job) { return job->id == id; });
  return place == running.end() ? nullptr : place->get();
}

void Batch::Impl::feed(const AnswersInStep& batch, Feed feeding) {
  std::vector<Session*> sessions;
  std::vector<Token> tokens;
  for (const AnswerInStep& one : batch) {
    sessions.push_back(&one.answer->session);
    tokens.push_back(one.answer->next);
  }
  std::vector<CutError::Failure> failures;
  try {
    if (feeding == Feed::kStart) {
      winnow::start_step(*engine, sessions, tokens);
    } else {
      engine->decode(sessions, tokens);
    }
  } catch (const CutError& error) {
    failures = error.failures;
  } catch (const PipelineError&) {
    throw;
  } catch (const std::exception& error) {
    // A failed step changed nothing. One by one, only those fail whose fault it is.
    if (batch.size() > 1) {
      for (const AnswerInStep& one : batch) {
        // An earlier one's failure may have ended this one with its job.
        if (find_running(one.job_id) != nullptr) feed({one}, feeding);
      }
      return;
    }
    const auto* ours = dynamic_cast<const Error*>(&error);
    fail(*find_running(batch[0].job_id), ours != nullptr ? ours->code() : ErrorCode::kInternal, error.what());
    return;
  }
  if (feeding == Feed::kWhole) return go_on(batch, failures);
  for (const AnswerInStep& one : batch) one.answer->is_stepping = true;
  steps.push_back(batch);
}

void Batch::Impl::go_on(const AnswersInStep& batch, const std::vector<CutError::Failure>& failures) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    BatchJob* job = find_running(batch[i].job_id);
    if (job == nullptr) continue;
    batch[i].answer->is_stepping = false;
    const auto failure = std::find_if(failures.begin(), failures.end(), [&](const auto& f) { return f.session == i; });
    if (failure == failures.end()) {
      choose(*job, *batch[i].answer);
    } else {
      fail(*job, failure->code, failure->message);
    }
  }
}

bool Batch::Impl::choose(BatchJob& job, BatchAnswer& answer) {
  const BatchRequest& request = job.request;
  if (!request.has_answer) return finish_answer(job, answer, FinishReason::kLength);
  BatchToken chosen{.answer = answer.index, .log_probability = std::numeric_limits<float>::quiet_NaN()};
  bool is_wanted = true;
  try {
    const std::span<const float> logits = answer.session.logits();
    chosen.token = answer.sampler.sample(logits);
    if (!request.ignore_end && engine->model()->is_end_of_generation(chosen.token)) {
      return finish_answer(job, answer, FinishReason::kEndOfText);
    }
    if (request.n_probabilities >= 0) {
      chosen = scored_token(answer.index, chosen.token, logits, request.n_probabilities);
    }
    answer.next = chosen.token;
    ++answer.n_tokens;
    ++job.result.answer_tokens;
    ++totals.answer_tokens;
    is_wanted = !job.callbacks.on_token || job.callbacks.on_token(chosen);
  } catch (const Error& error) {
    fail(job, error.code(), error.what());
    return false;
  } catch (const std::exception& error) {
    fail(job, ErrorCode::kInternal, error.what());
    return false;
  }
  if (!is_wanted) return finish_answer(job, answer, FinishReason::kStopped);
  if (answer.n_tokens >= request.max_tokens) return finish_answer(job, answer, FinishReason::kLength);
  return true;
}

bool Batch::Impl::finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason) {
  const int index = answer.index;
  keep_answer(job, std::move(answer.session));
  if (!job.has_finished_answer || index == 0) job.result.reason = reason;
  job.has_finished_answer = true;
  std::erase_if(job.answers, [&](const std::unique_ptr<BatchAnswer>& other) { return other.get() == &answer; });
  has_changed = true;
  if (job.callbacks.on_finish) job.callbacks.on_finish(index, reason);
  if (!job.answers.empty()) return true;
  finish(job, job.result.reason);
  return false;
}

void Batch::Impl::fail(BatchJob& job, ErrorCode code, const std::string& message) {
  job.result.error_code = code;
  job.result.error = message;
  finish(job, FinishReason::kError);
}

void Batch::Impl::finish(BatchJob& job, FinishReason reason) {
  has_changed = true;
  std::unique_ptr<BatchJob> owned;
  const auto is_it = [&](const std::unique_ptr<BatchJob>& other) { return other.get() == &job; };
  const auto queued = std::find_if(waiting.begin(), waiting.end(), is_it);
  const bool was_queued = queued != waiting.end();
  if (was_queued) {
    owned = std::move(*queued);
    waiting.erase(queued);
    drop_unwanted_load();
  } else {
    const auto admitted = std::find_if(running.begin(), running.end(), is_it);
    owned = std::move(*admitted);
    running.erase(admitted);
  }
  // Pages go before anybody hears of it. A prefill goes before its session.
  stop_reading(&job, nullptr);
  job.answers.clear();
  job.session.reset();
  if (const PrefixPointer prefix = std::exchange(job.prefix, nullptr)) {
    if (prefix->n_users == 1 && !prefix->is_ready) stop_reading(nullptr, prefix.get());
    tree.release(*prefix);
    tree.trim();
  }
  job.result.reason = reason;
  if (job.first_token != BatchClock::time_point{}) {
    job.result.decode_s = seconds_between(job.first_token, BatchClock::now());
  }
  totals.cancelled += reason == FinishReason::kCancelled;
  totals.failed += reason == FinishReason::kError;
  totals.finished += reason != FinishReason::kCancelled && reason != FinishReason::kError;
  publish();
  const std::uint64_t id = job.id;
  if (job.callbacks.on_done) job.callbacks.on_done(job.result);
  owned.reset();  // with the callbacks, before drain() returns
  const std::lock_guard lock(mutex);
  n_waiting -= was_queued;
  live.erase(id);
  if (live.empty()) drained.notify_all();
}

}  // namespace winnow
