// The implementation of Runner, shared by its source files.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "eval/run/continuation.h"
#include "eval/run/decoding.h"
#include "eval/run/runner.h"
#include "winnow/error.h"
#include "winnow/pipeline.h"

namespace winnow::eval {

// The most tokens of a reference whose likelihood is measured.
inline constexpr std::size_t kMostReferenceTokens = 128;

// Tokens that memory estimates add to those that are fed: forks copy the page that they write to, and pages are rounded
// up.
inline constexpr std::int32_t kForkSlack = 2 * 32;

// A prompt that is prefilled once, into a session for every cell.
struct Pass {
  const WorkItem* item = nullptr;
  std::vector<std::size_t> turns;  // turns answered from it
  Prompt prompt;
  std::size_t n_after = 0;  // most tokens that follow it
};

// A cell of a pass.
struct Job {
  const Pass* pass = nullptr;
  std::size_t cell = 0;
  std::optional<Session> session;
  SessionStatistics after_cut = {};
  std::string broken = {};  // why a turn is missing in the session, so that no later one can continue it
};

// The tokens that are forced in a turn of a pass, and the full cache's predictions of them.
struct Forced {
  std::size_t turn = 0;
  Continuation continuation = {};  // for a question: the full cache's answer, known once that has been asked
  std::string text = {};           // text of that answer
  ReferencePredictions reference = {};
  double full_nll = 0;
  std::string failure = {};  // why there is no reference to compare with
};

std::size_t count_passes(const WorkItem& item);

struct Runner::Impl {
  std::shared_ptr<Engine> engine;
  const PromptBuilder& prompts;
  RunnerOptions options;
  RunnerCallbacks callbacks;
  Token newline;
  ResultStore* store = nullptr;
  std::int64_t n_done = 0, n_total = 0, n_before = 0;  // answers; n_before: those before the run
  // About what runs together now: estimated tokens of the feeds that are over, of the current feed, and in total;
  // answers that existed before it, and that it adds.
  double work_before = 0, work_of_feed = 0, work_total = 0;
  std::int64_t answers_before = 0, answers_of_work = 0;

  Impl(std::shared_ptr<Engine> engine, const PromptBuilder& prompts, RunnerOptions options, RunnerCallbacks callbacks);

  // runner.cc
  SessionOptions reference_options() const;  // options of the full cache that fidelity compares with
  SessionOptions session_options(std::size_t cell, QuestionMode mode) const;
  AnswerKey key_of(const WorkItem& item, std::size_t turn, std::size_t cell) const;
  bool is_done(const WorkItem& item) const;
  bool stop() const { return callbacks.should_stop && callbacks.should_stop(); }
  // Returns pass number p of a sample. Throws Error if there is no such prompt.
  Pass make_pass(const WorkItem& item, std::size_t p) const;
  // Appends the passes of a sample; a prompt that cannot be made is recorded as a failure of its turns.
  void add_passes(const WorkItem& item, std::vector<Pass>& passes);
  // Returns groups of jobs that run together. Jobs that can never run are recorded as failures. `beside` is the number
  // of bytes that the first group leaves free for another session.
  std::vector<std::vector<Job>> make_groups(std::span<const Pass> passes, std::size_t beside = 0);
  // Prefills a group; the jobs of a pass that fails are recorded as failures and removed. `beside` is one more session
  // that gets the first pass.
  void prefill(std::vector<Job>& group, Session* beside = nullptr);
  void prefill_pass(std::span<Job> jobs, Session* beside);
  Answer answer_of(const Job& job, std::size_t turn, std::size_t n_together) const;
  // Throws Error(kOutOfMemory) if `bytes` are more than a group may take.
  void check_memory(const std::string& what, std::size_t bytes) const;
  void put(const Answer& answer);
  void put_failure(const WorkItem& item, std::size_t turn, std::size_t cell, const std::string& reason);
  void put_failures(const Pass& pass, std::size_t cell, const std::string& reason);

  // work.cc
  bool reads_again(std::size_t cell) const;  // returns true if its method reads the prompt a second time
  double reading_work(const Pass& pass, bool reads_again) const;
  // Returns the tokens after the prompt, of one cell.
  double answering_work(const Pass& pass) const { return static_cast<double>(pass.n_after * pass.turns.size()); }
  // Begins the work of a group: about n_tokens tokens, for n_answers answers.
  void begin_work(double n_tokens, std::int64_t n_answers);
  void begin_work(std::span<const Job> group);
  // Returns the callback of the next feed, of n_tokens tokens, which reports its progress and stops it.
  ProgressCallback feed_callback(double n_tokens);
  void add_work(double n_tokens);  // adds a decode step
  void tell_work(double of_feed) const;
  // Returns the tokens that a sample's passes read and write in all cells, without passes that cannot be made; 0 if
  // there is no bound.
  double work_of(const WorkItem& item) const;
  std::int64_t answers_missing(const Pass& pass, std::size_t cell) const;

  // answering.cc
  // Returns a fork of the cut session with the turn's question appended; `session` goes on to the later turns. If it
  // cannot, `broken` gets the reason, and asking these throws Error with it.
  Session ask(Session& session, const WorkItem& item, std::size_t turn, std::string& broken);
  int room_in_context(const Session& session) const { return options.n_ctx - session.n_tokens(); }
  void answer_group(std::vector<Job>& group);
  struct Asked;
  void answer_round(std::vector<Job>& group, std::size_t round);
  // Asks the jobs' turns of a round, of those that have one.
  std::vector<Asked> ask_all(std::vector<Job>& group, std::size_t round);
  // Sets the NLL of the references. Returns false if that failed, which has been put down then.
  bool force_references(std::vector<Asked>& asked);
  // Decodes all answers together and puts them down.
  void decode_answers(std::vector<Asked>& asked, std::size_t n_together);
  void put_answer(const Asked& asked, const std::vector<Token>& tokens, std::size_t n_together);

  // forcing.cc
  // Returns true if the reference is prefilled in the same pass as the cells: all sessions of a pass have the same
  // entry types.
  bool reference_shares_pass() const;
  void force_item(const WorkItem& item);
  void force_pass(const Pass& pass, std::vector<Forced>& turns);
  // Returns the fork into which tokens are forced, after the question if there is one.
  Session behind_question(Session& session, const WorkItem& item, std::size_t turn, std::string& broken);
  void record_reference(Session& full, const Pass& pass, std::vector<Forced>& turns);
  // Generates the full cache's answer, greedily.
  void answer_question(const Session& session, const Pass& pass, Forced& forced);
  void force_job(Job& job, std::span<const Forced> turns, std::size_t n_together);
};

// Calls `work`, and `failed` with the reason if it throws anything but a request to stop or an error that ends all
// ranks.
template <typename Work, typename Failed>
void guarded(const Work& work, const Failed& failed) {
  try {
    work();
    return;
  } catch (const PipelineError&) {
    throw;  // not an error of a sample
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    failed(std::string(error.what()));
  } catch (const std::bad_alloc&) {
    failed(std::string("the machine ran out of memory: give a smaller --kv-memory or --batch"));
  } catch (const std::exception& error) {
    failed(std::string(error.what()));
  }
}

}  // namespace winnow::eval
