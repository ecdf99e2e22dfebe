// Measures the runner's work in tokens, which bounds what runs together and gives the progress.
#include <algorithm>
#include <cmath>

#include "eval/run/runner_impl.h"
#include "eviction/cut/cut.h"

namespace winnow::eval {
namespace {

// Time of a pass that repeats a prompt, as a multiple of the time to read it.
constexpr double kReadAgain = 2.2;

}  // namespace

bool Runner::Impl::reads_again(std::size_t cell) const {
  return options.cells[cell].budget && Cut::needs(options.cells[cell].eviction).reconstruction_pass;
}

double Runner::Impl::reading_work(const Pass& pass, bool reads_again) const {
  return static_cast<double>(pass.prompt.tokens.size()) * (reads_again ? 1 + kReadAgain : 1);
}

void Runner::Impl::begin_work(double n_tokens, std::int64_t n_answers) {
  work_before = work_of_feed = 0;
  work_total = n_tokens;
  answers_before = n_done;
  answers_of_work = n_answers;
}

void Runner::Impl::begin_work(std::span<const Job> group) {
  double n_tokens = 0;
  std::int64_t n_answers = 0;
  for (std::size_t i = 0; i < group.size();) {
    const Pass& pass = *group[i].pass;
    bool again = false;
    for (; i < group.size() && group[i].pass == &pass; ++i) {
      n_tokens += answering_work(pass);
      n_answers += answers_missing(pass, group[i].cell);
      again = again || reads_again(group[i].cell);
    }
    n_tokens += reading_work(pass, again);
  }
  begin_work(n_tokens, n_answers);
}

ProgressCallback Runner::Impl::feed_callback(double n_tokens) {
  work_before += work_of_feed;
  work_of_feed = n_tokens;
  return [this, n_tokens](std::int64_t done, std::int64_t total) {
    tell_work(n_tokens * static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(total, 1)));
    return !stop();
  };
}

void Runner::Impl::add_work(double n_tokens) {
  work_before += work_of_feed + n_tokens;
  work_of_feed = 0;
  tell_work(0);
}

void Runner::Impl::tell_work(double of_feed) const {
  if (!callbacks.on_work) return;
  const double done = std::min(work_before + of_feed, work_total);
  const double of_group = work_total > 0 ? done / work_total : 0;
  // Answers under way count by the share of the group's work that is done.
  const double answers = std::max(static_cast<double>(n_done), static_cast<double>(answers_before) +
                                                                   of_group * static_cast<double>(answers_of_work));
  const auto n_to_do = static_cast<double>(std::max<std::int64_t>(n_total - n_before, 1));
  callbacks.on_work({.answers_done = n_done,
                     .answers_total = n_total,
                     .tokens_done = std::llround(done),
                     .tokens_total = std::llround(work_total),
                     .share = std::min((answers - static_cast<double>(n_before)) / n_to_do, 1.0)});
}

std::int64_t Runner::Impl::answers_missing(const Pass& pass, std::size_t cell) const {
  return std::count_if(pass.turns.begin(), pass.turns.end(),
                       [&](std::size_t turn) { return !store->has(key_of(*pass.item, turn, cell)); });
}

double Runner::Impl::work_of(const WorkItem& item) const {
  double work = 0;
  if (options.batch_tokens == RunnerOptions().batch_tokens) return work;
  bool again = false;
  for (std::size_t cell = 0; cell < options.cells.size(); ++cell) again = again || reads_again(cell);
  for (std::size_t p = 0; p < count_passes(item); ++p) {
    try {
      const Pass pass = make_pass(item, p);
      work += reading_work(pass, again) + static_cast<double>(options.cells.size()) * answering_work(pass);
    } catch (const Error&) {
      // An error in a sample is recorded when its turn comes.
    }
  }
  return work;
}

}  // namespace winnow::eval
