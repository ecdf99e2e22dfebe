#include "winnow/batch.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "batch/admission.h"
#include "batch/batch_impl.h"
#include "engine/engine_impl.h"

namespace winnow {
namespace {

// While no answer is being decoded, slices of prefill are computed for this long between two looks at the inbox.
constexpr double kIdlePrefillSeconds = 0.02;
// The age at which an idle batch saves a context, and that at which a busy one does.
constexpr std::chrono::seconds kAtOnce{0}, kLatestSave{2};

// Returns how long a conversation must have rested before it is saved, since it may soon go on.
BatchClock::duration conversation_age(const BatchOptions& options) {
  return std::chrono::duration_cast<BatchClock::duration>(std::chrono::duration<double>(options.save_after_s));
}

BatchOptions checked(const BatchOptions& options) {
  const auto require = [](bool is_valid, const std::string& sentence) {
    if (!is_valid) throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  require(options.n_parallel >= 1 && options.n_parallel <= BatchOptions::kMaxParallel,
          "n_parallel is " + std::to_string(options.n_parallel) + ": give 1 to " +
              std::to_string(BatchOptions::kMaxParallel));
  require(options.max_queued >= 0, "max_queued is " + std::to_string(options.max_queued) + ": give 0 or more");
  require(options.prefill_share > 0 && options.prefill_share <= 1000,
          "prefill_share is " + format_number(options.prefill_share) + ": give more than 0 and at most 1000");
  require(options.cache_dir.empty() || options.context_bytes > 0,
          "saved contexts need memory for kept contexts: give more than 0 bytes");
  require(!options.cache_dir.empty() || options.cache_dir_bytes == 0,
          "a limit of saved contexts needs a folder for them: name one");
  require(options.save_after_s >= 0, "save_after_s is " + format_number(options.save_after_s) + ": give 0 or more");
  return options;
}

}  // namespace

Batch::Impl::Impl(std::shared_ptr<Engine> the_engine, const BatchOptions& the_options)
    : engine(std::move(the_engine)),
      options(checked(the_options)),
      inbox(options),
      scheduler(engine, options, inbox, [this](BatchJob& job) { steps.start_answers(job); }),
      steps(*engine, scheduler) {
  scheduler.publish();
  thread = std::thread([this] { run(); });
}

void Batch::Impl::run() {
  try {
    work();
  } catch (const PipelineError& error) {
    // No engine of these ranks can go on: every request fails with the reason, and further ones are refused.
    scheduler.add_unchecked(inbox.close());
    scheduler.fail_all(error.code(), error.what());
  }
}

void Batch::Impl::work() {
  while (receive()) {
    scheduler.collect_file_work();
    scheduler.admit();
    scheduler.cache().storage().touch_files();
    const double seconds = steps.step();
    if (scheduler.has_prefills()) {
      scheduler.prefill(seconds > 0 ? seconds * options.prefill_share : kIdlePrefillSeconds);
    }
    scheduler.cache().storage().save_one(scheduler.running().empty() ? kAtOnce : kLatestSave,
                                         conversation_age(options));
    scheduler.publish();
  }
  scheduler.finish_all(FinishReason::kCancelled);
  steps.finish_all();
  scheduler.flush_files();
}

bool Batch::Impl::receive() {
  const PrefixStorage& storage = scheduler.cache().storage();
  if (scheduler.is_idle() && !inbox.has_news() && !storage.is_over()) rest();
  RequestInbox::News news = inbox.take();
  if (news.is_stopping) {
    scheduler.add_unchecked(std::move(news.jobs));
    return false;
  }
  for (std::unique_ptr<BatchJob>& job : news.jobs) scheduler.add(std::move(job));
  scheduler.cancel(news.cancelled);
  return true;
}

void Batch::Impl::rest() {
  PrefixStorage& storage = scheduler.cache().storage();
  std::optional<BatchClock::time_point> due;
  // A search takes very little time, so no other work begins meanwhile.
  if (!storage.is_searching() && !storage.save_one(kAtOnce, conversation_age(options))) {
    due = storage.next_save(conversation_age(options));
    if (storage.is_loading()) {
      engine->impl().release_step();
    } else {
      engine->impl().rest();
    }
  }
  inbox.wait(due, [&] { return storage.is_over(); });
}

Batch::Batch(std::shared_ptr<Engine> engine, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(std::move(engine), options)) {}

Batch::~Batch() {
  impl_->inbox.stop();
  impl_->thread.join();
}

std::uint64_t Batch::submit(BatchRequest request, BatchCallbacks callbacks, std::span<const std::uint64_t> follows) {
  auto job = std::make_unique<BatchJob>();
  job->request = std::move(request);
  job->callbacks = std::move(callbacks);
  job->submitted = BatchClock::now();
  make_samplers(*job, *impl_->engine, impl_->options);
  return impl_->inbox.submit(std::move(job), follows);
}

void Batch::cancel(std::uint64_t id) { impl_->inbox.cancel(id); }
bool Batch::drain(double seconds) { return impl_->inbox.drain(seconds); }
BatchStatistics Batch::statistics() const { return impl_->inbox.statistics(); }
std::vector<BatchEntry> Batch::entries() const { return impl_->inbox.entries(); }
const std::shared_ptr<Engine>& Batch::engine() const { return impl_->engine; }

}  // namespace winnow
