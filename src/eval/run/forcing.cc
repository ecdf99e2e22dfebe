// Fidelity and perplexity: a text is cut, and its true continuation, or the full cache's answer to a question, is
// forced through the entries that are kept.
#include <algorithm>

#include "eval/run/runner_impl.h"

namespace winnow::eval {

bool Runner::Impl::reference_shares_pass() const {
  return reference_type(options.key_type) == options.key_type &&
         reference_type(options.value_type) == options.value_type;
}

void Runner::Impl::force_item(const WorkItem& item) {
  std::vector<Pass> passes;
  if (asks(item.protocol)) {
    add_passes(item, passes);
    for (const Pass& pass : passes) {
      std::vector<Forced> turns;
      for (const std::size_t turn : pass.turns) turns.push_back({.turn = turn});
      force_pass(pass, turns);
    }
    return;
  }
  std::vector<Forced> turns(1);
  Continuation& continuation = turns[0].continuation;
  guarded(
      [&] {
        PromptBuilder::Continued continued = prompts.continued(item.sample);
        continuation.tokens = std::move(continued.continuation);
        continuation.n_feed = continued.n_feed;
        passes.push_back({.item = &item,
                          .turns = {0},
                          .prompt = {std::move(continued.text), false},
                          .n_after = continuation.n_feed});
      },
      [&](const std::string& reason) {
        for (std::size_t cell = 0; cell < options.cells.size(); ++cell) put_failure(item, 0, cell, reason);
      });
  if (!passes.empty()) force_pass(passes[0], turns);
}

void Runner::Impl::force_pass(const Pass& pass, std::vector<Forced>& turns) {
  std::size_t beside = 0;
  bool needs_reference = compares(pass.item->protocol), can_compare = true, again = false;
  double work = answering_work(pass);
  std::int64_t n_answers = 0;
  for (std::size_t cell = 0; cell < options.cells.size(); ++cell) {
    work += answering_work(pass);
    n_answers += answers_missing(pass, cell);
    again = again || reads_again(cell);
  }
  if (needs_reference && !reference_shares_pass()) work += reading_work(pass, false);
  begin_work(work + reading_work(pass, again), n_answers);
  guarded(
      [&] {
        if (!needs_reference) return;
        const std::vector<Token>& prompt = pass.prompt.tokens;
        const MemoryEstimate estimate = engine->estimate(reference_options(), static_cast<std::int32_t>(prompt.size()),
                                                         static_cast<std::int32_t>(pass.n_after) + kForkSlack);
        if (reference_shares_pass()) {
          beside = estimate.kv_bytes_peak - estimate.kv_bytes_staging;
          return;
        }
        check_memory("the full cache to compare with", estimate.kv_bytes_peak + estimate.hidden_bytes);
        Session session = engine->open(reference_options());
        PrefillOptions prefill_options;
        prefill_options.on_progress = feed_callback(reading_work(pass, false));
        session.prefill(prompt, prefill_options);
        record_reference(session, pass, turns);
        needs_reference = false;
      },
      [&](const std::string& reason) {
        can_compare = false;
        for (std::size_t cell = 0; cell < options.cells.size(); ++cell) put_failures(pass, cell, reason);
      });
  if (!can_compare) return;
  for (std::vector<Job>& group : make_groups(std::span(&pass, 1), beside)) {
    // The full cache is prefilled in the first pass with the others, and released before the next.
    std::optional<Session> full;
    if (needs_reference) full.emplace(engine->open(reference_options()));
    prefill(group, full ? &*full : nullptr);
    if (full && full->n_tokens() > 0) {
      record_reference(*full, pass, turns);
      needs_reference = false;
      full.reset();
    }
    for (Job& job : group) force_job(job, turns, group.size());
  }
}

Session Runner::Impl::behind_question(Session& session, const WorkItem& item, std::size_t turn, std::string& broken) {
  return asks(item.protocol) ? ask(session, item, turn, broken) : session.fork();
}

void Runner::Impl::record_reference(Session& full, const Pass& pass, std::vector<Forced>& turns) {
  std::string broken;
  for (Forced& forced : turns) {
    guarded(
        [&] {
          Session session = behind_question(full, *pass.item, forced.turn, broken);
          if (asks(pass.item->protocol)) answer_question(session, pass, forced);
          const ProgressCallback feed = feed_callback(static_cast<double>(forced.continuation.n_feed));
          forced.full_nll = force_continuation(session, forced.continuation, nullptr, &forced.reference, feed).nll;
        },
        [&](const std::string& reason) { forced.failure = reason; });
  }
}

void Runner::Impl::answer_question(const Session& session, const Pass& pass, Forced& forced) {
  const Sample& sample = pass.item->sample;
  Session answering = session.fork();
  // The last token is not fed.
  const int most = std::min(
      {sample.turns[forced.turn].max_new, static_cast<int>(kContinuationTokens), room_in_context(session) + 1});
  GenerationBatch batch(engine, newline);
  batch.add(0, answering, {.max_new = most, .stop_at_newline = sample.stop_at_newline});
  Continuation& answer = forced.continuation;
  while (!batch.is_over()) {
    if (stop()) throw Error(ErrorCode::kCancelled, "the evaluation was stopped");
    add_work(1);
    for (GenerationBatch::Finished& finished : batch.step()) answer.tokens = std::move(finished.tokens);
  }
  forced.text = answer_text(*engine->model(), answer.tokens);
  // If the answer ends by itself, the prediction of its end counts.
  const std::size_t n = answer.tokens.size();
  answer.n_feed = std::ssize(answer.tokens) < most || n == 0 ? n : n - 1;
  answer.counts_first = session.n_tokens() > static_cast<int>(pass.prompt.tokens.size());
  if (answer.n_feed == 0 && !answer.counts_first) {
    throw Error(ErrorCode::kInvalidArgument,
                "the full cache's answer ends with its first token, which is predicted before the cut: "
                "use the question mode agnostic");
  }
}

void Runner::Impl::force_job(Job& job, std::span<const Forced> turns, std::size_t n_together) {
  const WorkItem& item = *job.pass->item;
  for (const Forced& forced : turns) {
    guarded(
        [&] {
          // The question is asked first, because later turns continue from it.
          Session session = behind_question(*job.session, item, forced.turn, job.broken);
          if (!forced.failure.empty()) throw Error(ErrorCode::kInvalidArgument, forced.failure);
          const double before = session.statistics().prefill_s;
          const bool is_compared = compares(item.protocol);
          const ContinuationResult result =
              force_continuation(session, forced.continuation, is_compared ? &forced.reference : nullptr, nullptr,
                                 feed_callback(static_cast<double>(forced.continuation.n_feed)));
          Answer answer = answer_of(job, forced.turn, n_together);
          answer.text = forced.text;
          if (result.nll_tokens > 0) answer.nll = result.nll;
          answer.nll_tokens = result.nll_tokens;
          answer.decode_s = session.statistics().prefill_s - before;
          if (is_compared) answer.fidelity = Fidelity{*result.kl, *result.top1, forced.full_nll};
          put(answer);
        },
        [&](const std::string& reason) { put_failure(item, forced.turn, job.cell, reason); });
  }
  job.session.reset();
}

}  // namespace winnow::eval
