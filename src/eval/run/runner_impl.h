// The runner's parts, for its own files.
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

// Of a reference, for its likelihood.
inline constexpr std::size_t kMostReferenceTokens = 128;

// Forks copy the page that they write to; so many tokens more than are fed pay for that and for rounding.
inline constexpr std::int32_t kForkSlack = 2 * 32;

// A prompt that is prefilled once, into a session for every cell.
struct Pass {
  const WorkItem* item = nullptr;
  std::vector<std::size_t> turns;  // answered from it
  Prompt prompt;
  std::size_t n_after = 0;  // most tokens that follow it
};

// A cell of a pass.
struct Job {
  const Pass* pass = nullptr;
  std::size_t cell = 0;
  std::optional<Session> session;
  SessionStatistics after_cut = {};
};

// What is forced in a turn of a pass, and what the full cache made of it.
struct Forced {
  std::size_t turn = 0;
  Continuation continuation = {};  // of a question: the full cache's answer, known once that has been asked
  std::string text = {};           // of that answer
  ReferencePredictions reference = {};
  double full_nll = 0;
  std::string failure = {};  // why there is nothing to compare with
};

struct Runner::Impl {
  std::shared_ptr<Engine> engine;
  const PromptBuilder& prompts;
  RunnerOptions options;
  RunnerCallbacks callbacks;
  Token newline;
  ResultStore* store = nullptr;
  std::int64_t n_done = 0, n_total = 0;

  Impl(std::shared_ptr<Engine> engine, const PromptBuilder& prompts, RunnerOptions options, RunnerCallbacks callbacks);

  // runner.cc
  SessionOptions reference_options() const;  // of the full cache that fidelity compares with
  SessionOptions session_options(std::size_t cell) const;
  AnswerKey key_of(const WorkItem& item, std::size_t turn, std::size_t cell) const;
  bool is_done(const WorkItem& item) const;
  bool stop() const { return callbacks.should_stop && callbacks.should_stop(); }
  ProgressCallback stop_callback() const;
  // What a pass becomes; a prompt that cannot be made is written down as a failure of its turns.
  void add_passes(const WorkItem& item, std::vector<Pass>& passes);
  // Groups of jobs that run together. Jobs that can never run are written down as failures. `beside`: bytes that the
  // first group leaves to something else.
  std::vector<std::vector<Job>> make_groups(std::span<const Pass> passes, std::size_t beside = 0);
  // Prefills a group; the jobs of a pass that fails are written down and taken out. `beside` gets the first pass, too.
  void prefill(std::vector<Job>& group, Session* beside = nullptr);
  void prefill_pass(std::span<Job> jobs, Session* beside);
  Answer answer_of(const Job& job, std::size_t turn, std::size_t n_together) const;
  // Throws Error(kOutOfMemory) where `bytes` are more than a group may take.
  void check_memory(const std::string& what, std::size_t bytes) const;
  void put(const Answer& answer);
  void put_failure(const WorkItem& item, std::size_t turn, std::size_t cell, const std::string& reason);
  void put_failures(const Pass& pass, std::size_t cell, const std::string& reason);

  // answering.cc
  // The turn's question, behind a fork of what was cut; `session` goes on to the later turns.
  Session ask(Session& session, const WorkItem& item, std::size_t turn) const;
  int room_in_context(const Session& session) const { return options.n_ctx - session.n_tokens(); }
  void answer_group(std::vector<Job>& group);
  void answer_round(std::vector<Job>& group, std::size_t round);

  // forcing.cc
  // Whether the reference goes through the pass of the others: all sessions of a pass have the same entry types.
  bool reference_shares_pass() const;
  void force_item(const WorkItem& item);
  void force_pass(const Pass& pass, std::vector<Forced>& turns);
  // Where something is forced: behind the question, if there is one.
  Session behind_question(Session& session, const WorkItem& item, std::size_t turn) const;
  void record_reference(Session& full, const Pass& pass, std::vector<Forced>& turns) const;
  // What the full cache answers, greedily.
  void answer_question(const Session& session, const Pass& pass, Forced& forced) const;
  void force_job(Job& job, std::span<const Forced> turns, std::size_t n_together);
};

// Calls `work`, and `failed` with the reason if it throws anything but a request to stop and what ends all ranks.
template <typename Work, typename Failed>
void guarded(const Work& work, const Failed& failed) {
  try {
    work();
    return;
  } catch (const PipelineError&) {
    throw;  // of no sample
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    failed(std::string(error.what()));
  } catch (const std::bad_alloc&) {
    failed(std::string("the machine has no memory left for it: give a smaller --kv-memory or --batch"));
  } catch (const std::exception& error) {
    failed(std::string(error.what()));
  }
}

}  // namespace winnow::eval
