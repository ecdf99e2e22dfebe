// A group's answers: the question is appended to a fork of each cut cache, the reference is forced through another, and
// all answers are decoded together.
#include <algorithm>
#include <utility>

#include "eval/run/runner_impl.h"

namespace winnow::eval {

// A turn of a job that is being answered.
struct Runner::Impl::Asked {
  Job* job;
  std::size_t turn;
  Session session;  // after the question
  std::vector<Token> reference;
  double nll = 0;
  double decode_s_before = 0;

  const WorkItem& item() const { return *job->pass->item; }
  const Turn& asked_turn() const { return item().sample.turns[turn]; }
};

Session Runner::Impl::ask(Session& session, const WorkItem& item, std::size_t turn, std::string& broken) {
  const auto append = [&](Session& to, const std::vector<Token>& tokens) {
    PrefillOptions feed;
    feed.on_progress = feed_callback(static_cast<double>(tokens.size()));
    if (!tokens.empty()) to.append(tokens, feed);
  };
  if (!broken.empty()) throw Error(ErrorCode::kInvalidArgument, "an earlier turn could not be asked: " + broken);
  if (is_multi_turn(item) && turn > 0) {
    guarded([&] { append(session, prompts.follow_up(item.sample, turn)); },
            [&](const std::string& reason) { broken = reason; });
    if (!broken.empty()) throw Error(ErrorCode::kInvalidArgument, broken);
  }
  Session asked = session.fork();
  if (item.mode == QuestionMode::kAgnostic) append(asked, prompts.question(item.sample, turn));
  return asked;
}

void Runner::Impl::answer_group(std::vector<Job>& group) {
  std::size_t n_rounds = 0;
  for (const Job& job : group) n_rounds = std::max(n_rounds, job.pass->turns.size());
  for (std::size_t round = 0; round < n_rounds; ++round) answer_round(group, round);
}

void Runner::Impl::answer_round(std::vector<Job>& group, std::size_t round) {
  std::vector<Asked> asked = ask_all(group, round);
  if (force_references(asked)) decode_answers(asked, group.size());
}

std::vector<Runner::Impl::Asked> Runner::Impl::ask_all(std::vector<Job>& group, std::size_t round) {
  std::vector<Asked> asked;
  for (Job& job : group) {
    if (round >= job.pass->turns.size() || !job.session) continue;
    const WorkItem& item = *job.pass->item;
    const std::size_t turn = job.pass->turns[round];
    guarded(
        [&] {
          Asked next{.job = &job, .turn = turn, .session = ask(*job.session, item, turn, job.broken)};
          next.reference = prompts.reference(item.sample, turn, item.mode);
          const auto room = static_cast<std::size_t>(std::max(room_in_context(next.session), 0));
          next.reference.resize(std::min({next.reference.size(), kMostReferenceTokens, room}));
          asked.push_back(std::move(next));
        },
        [&](const std::string& reason) { put_failure(item, turn, job.cell, reason); });
  }
  return asked;
}

bool Runner::Impl::force_references(std::vector<Asked>& asked) {
  bool is_done = false;
  guarded(
      [&] {
        std::vector<Session> forks;
        std::vector<std::vector<Token>> references;
        for (Asked& one : asked) {
          forks.push_back(one.session.fork());
          references.push_back(one.reference);
        }
        std::vector<Session*> sessions;
        for (Session& fork : forks) sessions.push_back(&fork);
        const std::vector<double> nll = forced_nll(*engine, sessions, references, [&] {
          add_work(static_cast<double>(sessions.size()));
          return stop();
        });
        for (std::size_t i = 0; i < asked.size(); ++i) asked[i].nll = nll[i];
        is_done = true;
      },
      [&](const std::string& reason) {
        for (const Asked& one : asked) put_failure(one.item(), one.turn, one.job->cell, reason);
      });
  return is_done;
}

void Runner::Impl::decode_answers(std::vector<Asked>& asked, std::size_t n_together) {
  GenerationBatch batch(engine, newline);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Asked& one = asked[i];
    const int room = room_in_context(one.session) + 1;  // the last token is not fed
    one.decode_s_before = one.session.statistics().decode_s;
    batch.add(
        i, one.session,
        {.max_new = std::min(one.asked_turn().max_new, room), .stop_at_newline = one.item().sample.stop_at_newline});
  }
  while (!batch.is_over()) {
    if (stop()) throw Error(ErrorCode::kCancelled, "the evaluation was stopped");
    add_work(static_cast<double>(batch.running().size()));
    std::vector<GenerationBatch::Finished> finished;
    bool has_failed = false;
    guarded([&] { finished = batch.step(); },
            [&](const std::string& reason) {
              has_failed = true;
              for (const std::size_t i : batch.running()) {
                put_failure(asked[i].item(), asked[i].turn, asked[i].job->cell, reason);
              }
            });
    for (const GenerationBatch::Finished& one : finished) put_answer(asked[one.index], one.tokens, n_together);
    if (has_failed) return;
  }
}

void Runner::Impl::put_answer(const Asked& asked, const std::vector<Token>& tokens, std::size_t n_together) {
  const Turn& turn = asked.asked_turn();
  Answer answer = answer_of(*asked.job, asked.turn, n_together);
  answer.text = answer_text(*engine->model(), tokens);
  answer.answer_tokens = static_cast<int>(tokens.size());
  answer.decode_s = asked.session.statistics().decode_s - asked.decode_s_before;
  if (!asked.reference.empty()) {
    answer.nll = asked.nll;
    answer.nll_tokens = static_cast<int>(asked.reference.size());
  }
  guarded(
      [&] {
        answer.score = callbacks.score(asked.item().sample, turn, answer.text);
        if (!turn.keyword.empty()) answer.has_keyword = answer.text.find(turn.keyword) != std::string::npos;
      },
      [&](const std::string& reason) { answer.error = "the answer could not be scored: " + reason; });
  put(answer);
}

}  // namespace winnow::eval
