#include "eval/run/runner.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "engine/planned_cuts.h"
#include "eval/run/runner_impl.h"

namespace winnow::eval {
namespace {

// Returns the prompt that is cut in one of the passes.
Prompt prompt_of_pass(const PromptBuilder& prompts, const WorkItem& item, std::size_t pass) {
  return item.mode == QuestionMode::kAgnostic ? prompts.context(item.sample) : prompts.whole(item.sample, pass);
}

std::size_t count_turns(const WorkItem& item) { return asks(item.protocol) ? item.sample.turns.size() : 1; }

SessionOptions session_options(const RunnerOptions& options, const Cell& cell, QuestionMode mode) {
  SessionOptions session;
  session.key_type = options.key_type;
  session.value_type = options.value_type;
  session.eviction = cell.eviction;
  session.budget = cell.budget;
  session.n_ctx = options.n_ctx;
  session.question_aware = mode == QuestionMode::kAware;
  return session;
}

}  // namespace

std::size_t count_passes(const WorkItem& item) {
  const bool is_shared = item.mode == QuestionMode::kAgnostic || is_multi_turn(item);
  return is_shared ? 1 : item.sample.turns.size();
}

std::int64_t count_answers(std::span<const WorkItem* const> items, std::size_t n_cells) {
  std::int64_t n = 0;
  for (const WorkItem* item : items) n += static_cast<std::int64_t>(count_turns(*item) * n_cells);
  return n;
}

Runner::Impl::Impl(std::shared_ptr<Engine> the_engine, const PromptBuilder& the_prompts, RunnerOptions the_options,
                   RunnerCallbacks the_callbacks)
    : engine(std::move(the_engine)),
      prompts(the_prompts),
      options(std::move(the_options)),
      callbacks(std::move(the_callbacks)),
      newline(newline_token(*engine->model())) {}

SessionOptions Runner::Impl::reference_options() const {
  SessionOptions session = eval::session_options(options, {}, QuestionMode::kAgnostic);
  session.key_type = reference_type(options.key_type);
  session.value_type = reference_type(options.value_type);
  return session;
}

SessionOptions Runner::Impl::session_options(std::size_t cell, QuestionMode mode) const {
  return eval::session_options(options, options.cells[cell], mode);
}

AnswerKey Runner::Impl::key_of(const WorkItem& item, std::size_t turn, std::size_t cell) const {
  SessionOptions session = session_options(cell, item.mode);
  session.choose_types(engine->model()->info());
  return {.benchmark = item.benchmark,
          .task = item.sample.task,
          .id = item.sample.id,
          .turn = static_cast<int>(turn),
          .question = std::string(question_mode_name(item.mode)),
          .method = options.cells[cell].method,
          .budget = options.cells[cell].budget_text,
          .types = {.key = session.stored_key_types(), .value = session.stored_value_types()}};
}

bool Runner::Impl::is_done(const WorkItem& item) const {
  for (std::size_t turn = 0; turn < count_turns(item); ++turn) {
    for (std::size_t cell = 0; cell < options.cells.size(); ++cell) {
      if (!store->has(key_of(item, turn, cell))) return false;
    }
  }
  return true;
}

void Runner::Impl::check_memory(const std::string& what, std::size_t bytes) const {
  if (bytes <= options.kv_memory) return;
  const Budget limit{.unit = Budget::Unit::kBytes, .amount = static_cast<double>(options.kv_memory)};
  throw Error(ErrorCode::kOutOfMemory, what + " needs " + std::to_string((bytes + (1 << 20) - 1) >> 20) +
                                           "MiB, but --kv-memory is " + limit.text());
}

void Runner::Impl::put(const Answer& answer) {
  // The answer was computed again because a neighbour in its batch was missing.
  if (store->has(answer.key)) return;
  store->append(answer);
  ++n_done;
  if (callbacks.on_progress) callbacks.on_progress(n_done, n_total);
}

void Runner::Impl::put_failure(const WorkItem& item, std::size_t turn, std::size_t cell, const std::string& reason) {
  put({.key = key_of(item, turn, cell), .error = reason});
}

void Runner::Impl::put_failures(const Pass& pass, std::size_t cell, const std::string& reason) {
  for (const std::size_t turn : pass.turns) put_failure(*pass.item, turn, cell, reason);
}

Pass Runner::Impl::make_pass(const WorkItem& item, std::size_t p) const {
  const Sample& sample = item.sample;
  Pass pass{.item = &item};
  if (count_passes(item) == 1) {
    for (std::size_t turn = 0; turn < sample.turns.size(); ++turn) pass.turns.push_back(turn);
  } else {
    pass.turns = {p};
  }
  pass.prompt = prompt_of_pass(prompts, item, p);
  std::size_t appended = 0;
  for (const std::size_t turn : pass.turns) {
    const auto n_new = static_cast<std::size_t>(std::max(sample.turns[turn].max_new, 0));
    std::size_t n_question = 0;
    if (item.mode == QuestionMode::kAgnostic) n_question = prompts.question(sample, turn).size();
    if (is_multi_turn(item) && turn > 0) appended += prompts.follow_up(sample, turn).size();
    pass.n_after = std::max(pass.n_after, appended + n_question + std::max(n_new, kMostReferenceTokens));
  }
  return pass;
}

void Runner::Impl::add_passes(const WorkItem& item, std::vector<Pass>& passes) {
  for (std::size_t p = 0; p < count_passes(item); ++p) {
    guarded([&] { passes.push_back(make_pass(item, p)); },
            [&](const std::string& reason) {
              for (std::size_t turn = 0; turn < item.sample.turns.size(); ++turn) {
                if (count_passes(item) > 1 && turn != p) continue;
                for (std::size_t cell = 0; cell < options.cells.size(); ++cell) put_failure(item, turn, cell, reason);
              }
            });
  }
}

std::vector<std::vector<Job>> Runner::Impl::make_groups(std::span<const Pass> passes, std::size_t beside) {
  std::vector<std::vector<Job>> groups(1);
  std::size_t pages = beside,
              passing = 0;  // bytes of the group: what stays, and the most that a prefill needs besides
  double work = 0;          // tokens of the group
  // Cells that read the prompt again come last, so that the others need not wait for them.
  std::vector<std::size_t> cells(options.cells.size());
  std::iota(cells.begin(), cells.end(), std::size_t{0});
  std::stable_partition(cells.begin(), cells.end(), [&](std::size_t cell) { return !reads_again(cell); });
  for (const Pass& pass : passes) {
    bool is_read = false, is_read_again = false;  // in this group
    for (const std::size_t cell : cells) {
      guarded(
          [&] {
            const MemoryEstimate estimate = engine->estimate(session_options(cell, pass.item->mode),
                                                             static_cast<std::int32_t>(pass.prompt.tokens.size()),
                                                             static_cast<std::int32_t>(pass.n_after) + kForkSlack);
            const std::size_t own_pages = estimate.kv_bytes_peak - estimate.kv_bytes_staging;
            const std::size_t own_passing = estimate.kv_bytes_staging + estimate.hidden_bytes;
            check_memory("it", beside + own_pages + own_passing);
            const bool is_full = static_cast<int>(groups.back().size()) >= options.batch;
            // A cell that only shares a reading stays in the group: a new group would read the prompt again.
            const bool reads_more = !is_read || (reads_again(cell) && !is_read_again);
            const double reading = reading_work(pass, reads_again(cell));
            const bool is_long = reads_more && work + reading > static_cast<double>(options.batch_tokens);
            if (is_full || is_long || pages + own_pages + std::max(passing, own_passing) > options.kv_memory) {
              if (!groups.back().empty()) groups.emplace_back();
              pages = passing = 0;
              work = 0;
              is_read = is_read_again = false;
            }
            pages += own_pages;
            passing = std::max(passing, own_passing);
            if (!is_read || (reads_again(cell) && !is_read_again)) work += reading;
            work += answering_work(pass);
            is_read = true;
            is_read_again = is_read_again || reads_again(cell);
            groups.back().push_back({.pass = &pass, .cell = cell});
          },
          [&](const std::string& reason) { put_failures(pass, cell, reason); });
    }
  }
  return groups;
}

void Runner::Impl::prefill_pass(std::span<Job> jobs, Session* beside) {
  const Pass& pass = *jobs[0].pass;
  guarded(
      [&] {
        std::vector<Session*> sessions;
        if (beside != nullptr) sessions.push_back(beside);
        for (Job& job : jobs) {
          job.session.emplace(engine->open(session_options(job.cell, pass.item->mode)));
          sessions.push_back(&*job.session);
        }
        const bool again = std::any_of(jobs.begin(), jobs.end(), [&](const Job& job) { return reads_again(job.cell); });
        PrefillOptions prefill_options;
        prefill_options.on_progress = feed_callback(reading_work(pass, again));
        engine->prefill(sessions, pass.prompt.tokens, prefill_options);
        for (Job& job : jobs) job.after_cut = job.session->statistics();
      },
      [&](const std::string& reason) {
        for (Job& job : jobs) job.session.reset();
        if (jobs.size() == 1) {
          put_failures(pass, jobs[0].cell, reason);
          return;
        }
        // One job that cannot be cut fails all of them, so each is tried by itself.
        for (std::size_t i = 0; i < jobs.size(); ++i) {
          const bool feed_beside = beside != nullptr && beside->n_tokens() == 0;
          prefill_pass(jobs.subspan(i, 1), feed_beside ? beside : nullptr);
        }
      });
}

void Runner::Impl::prefill(std::vector<Job>& group, Session* beside) {
  for (std::size_t begin = 0; begin < group.size();) {
    std::size_t end = begin;
    while (end < group.size() && group[end].pass == group[begin].pass) ++end;
    prefill_pass(std::span(group).subspan(begin, end - begin), begin == 0 ? beside : nullptr);
    begin = end;
  }
  std::erase_if(group, [](const Job& job) { return !job.session.has_value(); });
}

Answer Runner::Impl::answer_of(const Job& job, std::size_t turn, std::size_t n_together) const {
  const SessionStatistics& cut = job.after_cut;
  Answer answer{.key = key_of(*job.pass->item, turn, job.cell)};
  answer.prompt_tokens = static_cast<int>(cut.prompt_tokens);
  answer.is_truncated = job.pass->prompt.is_truncated;
  answer.is_whole = options.cells[job.cell].budget.has_value() && cut.entries_kept == cut.entries_full;
  answer.entries_full = cut.entries_full;
  answer.entries_kept = cut.entries_kept;
  answer.bytes_full = cut.bytes_full;
  answer.bytes_kept = cut.bytes_kept;
  if (cut.promise) {
    answer.budget_taken = cut.promise->taken.text();
    answer.kl_expected = cut.promise->expected;
  }
  if (n_together == 1) answer.bytes_peak = cut.bytes_peak;
  answer.n_together = static_cast<int>(n_together);
  answer.prefill_s = cut.prefill_s;
  answer.evict_s = cut.evict_s;
  return answer;
}

std::vector<std::int32_t> prompt_lengths(const PromptBuilder& prompts, std::span<const WorkItem* const> items) {
  std::set<std::int32_t> lengths;
  for (const WorkItem* item : items) {
    const bool is_asked = asks(item->protocol);
    for (std::size_t p = 0; p < (is_asked ? count_passes(*item) : 1); ++p) {
      try {
        const std::size_t n_tokens =
            is_asked ? prompt_of_pass(prompts, *item, p).tokens.size() : prompts.continued(item->sample).text.size();
        lengths.insert(static_cast<std::int32_t>(n_tokens));
      } catch (const Error&) {
        // The run records what is wrong with a sample.
      }
    }
  }
  return {lengths.begin(), lengths.end()};
}

void check_cells(const Engine& engine, const RunnerOptions& options, std::span<const std::int32_t> lengths) {
  std::vector<PlannedCut> cuts;
  for (const Cell& cell : options.cells) {
    for (const std::int32_t length : lengths)
      cuts.push_back({session_options(options, cell, QuestionMode::kAgnostic), length});
  }
  check_cuts(engine, cuts);
}

Runner::Runner(std::shared_ptr<Engine> engine, const PromptBuilder& prompts, RunnerOptions options,
               RunnerCallbacks callbacks)
    : impl_(std::make_unique<Impl>(std::move(engine), prompts, std::move(options), std::move(callbacks))) {
  check_cells(*impl_->engine, impl_->options, std::span(&impl_->options.n_ctx, 1));
}

Runner::~Runner() = default;

bool Runner::run(std::span<const WorkItem* const> items, ResultStore& store) {
  Impl& self = *impl_;
  self.store = &store;
  self.n_total = count_answers(items, self.options.cells.size());
  self.n_done = 0;
  for (const WorkItem* item : items) {
    for (std::size_t turn = 0; turn < count_turns(*item); ++turn) {
      for (std::size_t cell = 0; cell < self.options.cells.size(); ++cell) {
        self.n_done += store.has(self.key_of(*item, turn, cell));
      }
    }
  }
  self.n_before = self.n_done;
  if (self.callbacks.on_progress) self.callbacks.on_progress(self.n_done, self.n_total);
  try {
    for (std::size_t begin = 0; begin < items.size();) {
      if (self.stop()) return false;
      // As many samples run together as fill the batch and are read in its time. They are always the same ones, done or
      // not.
      std::size_t end = begin, n_sequences = 0;
      double work = 0;
      const auto sequences_of = [&](const WorkItem& item) { return count_passes(item) * self.options.cells.size(); };
      do {
        n_sequences += sequences_of(*items[end]);
        work += self.work_of(*items[end]);
        ++end;
      } while (end < items.size() && items[begin]->protocol == Protocol::kAnswer &&
               items[end]->protocol == Protocol::kAnswer &&
               n_sequences + sequences_of(*items[end]) <= static_cast<std::size_t>(self.options.batch) &&
               work + self.work_of(*items[end]) <= static_cast<double>(self.options.batch_tokens));
      const std::span<const WorkItem* const> unit = items.subspan(begin, end - begin);
      begin = end;
      if (std::all_of(unit.begin(), unit.end(), [&](const WorkItem* item) { return self.is_done(*item); })) continue;
      if (unit[0]->protocol != Protocol::kAnswer) {
        self.force_item(*unit[0]);
        continue;
      }
      std::vector<Pass> passes;
      for (const WorkItem* item : unit) self.add_passes(*item, passes);
      for (std::vector<Job>& group : self.make_groups(passes)) {
        if (std::all_of(group.begin(), group.end(),
                        [&](const Job& job) { return self.answers_missing(*job.pass, job.cell) == 0; })) {
          continue;
        }
        self.begin_work(group);
        self.prefill(group);
        self.answer_group(group);
        group.clear();
      }
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) return false;
    throw;
  }
  return true;
}

}  // namespace winnow::eval
