// A group's answers: the question is appended to a fork of each cut cache, the reference is forced through another, and
// all answers are decoded together.
#include <algorithm>
#include <utility>

#include "eval/run/runner_impl.h"

namespace winnow::eval {
namespace {

// A turn of a job that is being answered.
struct Asked {
  Job* job;
  std::size_t turn;
  Session session;  // after the question
  std::vector<Token> reference;
  double nll = 0;
  double decode_s_before = 0;
};

}  // namespace

Session Runner::Impl::ask(Session& session, const WorkItem& item, std::size_t turn) {
  const auto append = [&](Session& to, const std::vector<Token>& tokens) {
    PrefillOptions feed;
    feed.on_progress = feed_callback(static_cast<double>(tokens.size()));
    if (!tokens.empty()) to.append(tokens, feed);
  };
  if (is_multi_turn(item) && turn > 0) append(session, prompts.follow_up(item.sample, turn));
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
  std::vector<Asked> asked;
  for (Job& job : group) {
    if (round >= job.pass->turns.size() || !job.session) continue;
    const WorkItem& item = *job.pass->item;
    const std::size_t turn = job.pass->turns[round];
    guarded(
        [&] {
          Asked next{.job = &job, .turn = turn, .session = ask(*job.session, item, turn)};
          next.reference = prompts.reference(item.sample, turn, item.mode);
          const auto room = static_cast<std::size_t>(std::max(room_in_context(next.session), 0));
          next.reference.resize(std::min({next.reference.size(), kMostReferenceTokens, room}));
          asked.push_back(std::move(next));
        },
        [&](const std::string& reason) { put_failure(item, turn, job.cell, reason); });
  }

  const auto fail_all = [&](const std::vector<std::size_t>& indices, const std::string& reason) {
    for (const std::size_t i : indices)
      put_failure(*asked[i].job->pass->item, asked[i].turn, asked[i].job->cell, reason);
  };
  std::vector<std::size_t> all(asked.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  bool failed = false;
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
      },
      [&](const std::string& reason) {
        failed = true;
        fail_all(all, reason);
      });
  if (failed) return;

  GenerationBatch batch(engine, newline);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Sample& sample = asked[i].job->pass->item->sample;
    // The last token is not fed.
    const int room = room_in_context(asked[i].session) + 1;
    asked[i].decode_s_before = asked[i].session.statistics().decode_s;
    batch.add(
        i, asked[i].session,
        {.max_new = std::min(sample.turns[asked[i].turn].max_new, room), .stop_at_newline = sample.stop_at_newline});
  }
  while (!batch.is_over()) {
    if (stop()) throw Error(ErrorCode::kCancelled, "the evaluation was stopped");
    add_work(static_cast<double>(batch.running().size()));
    std::vector<GenerationBatch::Finished> finished;
    guarded([&] { finished = batch.step(); },
            [&](const std::string& reason) {
              failed = true;
              fail_all(batch.running(), reason);
            });
    for (const GenerationBatch::Finished& one : finished) {
      const Asked& from = asked[one.index];
      const WorkItem& item = *from.job->pass->item;
      const Turn& turn = item.sample.turns[from.turn];
      Answer answer = answer_of(*from.job, from.turn, group.size());
      answer.text = answer_text(*engine->model(), one.tokens);
      answer.answer_tokens = static_cast<int>(one.tokens.size());
      answer.decode_s = from.session.statistics().decode_s - from.decode_s_before;
      if (!from.reference.empty()) {
        answer.nll = from.nll;
        answer.nll_tokens = static_cast<int>(from.reference.size());
      }
      guarded(
          [&] {
            answer.score = callbacks.score(item.sample, turn, answer.text);
            if (!turn.keyword.empty()) answer.has_keyword = answer.text.find(turn.keyword) != std::string::npos;
          },
          [&](const std::string& reason) { answer.error = "the answer could not be scored: " + reason; });
      put(answer);
    }
    if (failed) return;
  }
}

}  // namespace winnow::eval
