// What other threads see of a batch.
#include "winnow/batch.h"

#include <algorithm>

#include "batch/batch_impl.h"

namespace winnow {
namespace {

// A folder's limit where none is given, in units of the memory for contexts: disks are larger.
constexpr std::size_t kFolderShare = 4;

BatchOptions checked(const BatchOptions& options) {
  const auto require = [](bool is_valid, const std::string& sentence) {
    if (!is_valid) throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  require(options.n_parallel >= 1 && options.n_parallel <= 256,
          "a batch gives 1 to 256 answers at a time, not " + std::to_string(options.n_parallel));
  require(options.max_queued >= 0, "max_queued is " + std::to_string(options.max_queued) + ": give 0 or more");
  require(options.prefill_share > 0 && options.prefill_share <= 1000,
          "the share of the prefill must be above 0 and at most 1000");
  require(options.cache_dir.empty() || options.context_bytes > 0,
          "saved contexts need memory in which contexts are kept: raise it above 0");
  require(!options.cache_dir.empty() || options.cache_dir_bytes == 0,
          "a limit of saved contexts needs a folder for them");
  require(options.save_after_s >= 0, "conversations are saved after 0 seconds or more");
  return options;
}

}  // namespace

Batch::Impl::Impl(std::shared_ptr<Engine> the_engine, const BatchOptions& the_options)
    : engine(std::move(the_engine)), options(checked(the_options)), tree(options.context_bytes) {
  if (!options.cache_dir.empty()) {
    const std::size_t folder_bytes =
        options.cache_dir_bytes > 0 ? options.cache_dir_bytes : kFolderShare * options.context_bytes;
    files.emplace(engine, options.cache_dir, PrefixFiles::Limits{options.context_bytes, folder_bytes},
                  options.on_warning);
    restore();
  }
  publish();
  thread = std::thread([this] { run(); });
}

Batch::Batch(std::shared_ptr<Engine> engine, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(std::move(engine), options)) {}

Batch::~Batch() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_stopping = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

std::uint64_t Batch::submit(BatchRequest request, BatchCallbacks callbacks) {
  auto job = std::make_unique<BatchJob>();
  job->request = std::move(request);
  job->callbacks = std::move(callbacks);
  job->submitted = BatchClock::now();
  make_samplers(*job, *impl_->engine, impl_->options);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->is_draining || impl_->is_stopping) {
    throw Error(ErrorCode::kCancelled, "no more requests are taken: this process is about to end");
  }
  // Those that can start at once pass through the queue too, so it has room for them beside those that wait.
  const int n_idle = std::max(impl_->options.n_parallel - impl_->published.n_reading - impl_->published.n_answering, 0);
  if (impl_->n_waiting >= static_cast<std::size_t>(impl_->options.max_queued + n_idle)) {
    ++impl_->n_refused;
    const BatchStatistics& now = impl_->published;
    const double seconds = now.finished > 0 ? (now.decode_s + now.prefill_s) / static_cast<double>(now.finished) : 1;
    throw QueueFull(
        "the queue is full: " + std::to_string(impl_->n_waiting) + " requests wait already; try again in a while",
        std::clamp(static_cast<int>(seconds + 1), 1, 60));
  }
  job->id = impl_->next_id++;
  const std::uint64_t id = job->id;
  impl_->live.insert(id);
  impl_->incoming.push_back(std::move(job));
  ++impl_->n_waiting;
  impl_->wake.notify_all();
  return id;
}

void Batch::cancel(std::uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->live.contains(id)) return;
  impl_->cancelled.push_back(id);
  impl_->wake.notify_all();
}

bool Batch::drain(double seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->is_draining = true;
  impl_->wake.notify_all();
  return impl_->drained.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return impl_->live.empty(); });
}

BatchStatistics Batch::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  BatchStatistics statistics = impl_->published;
  statistics.refused = impl_->n_refused;
  statistics.n_queued = static_cast<int>(impl_->n_waiting);
  if (impl_->turn_begin) statistics.turn_s = seconds_between(*impl_->turn_begin, BatchClock::now());
  return statistics;
}

std::vector<BatchEntry> Batch::entries() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published_entries;
}

const std::shared_ptr<Engine>& Batch::engine() const { return impl_->engine; }

void Batch::Impl::publish() {
  BatchStatistics now = totals;
  for (const std::unique_ptr<BatchJob>& job : running) {
    now.n_answering += static_cast<int>(job->answers.size());
    now.n_reading += job->answers.empty();
  }
  now.bytes_promised = bytes_reserved();
  now.context_bytes = tree.bytes_in_pool();
  now.contexts_removed = tree.n_removed();

  std::vector<BatchEntry> entries;
  if (has_changed) {
    for (const PrefixPointer& context : tree.all()) {
      const SessionOptions& of = context->session.options();
      entries.push_back({.kind = BatchEntry::Kind::kContext,
                         .id = context->id,
                         .parent = context->parent == nullptr ? 0 : context->parent->id,
                         .is_context = context->is_context,
                         .state = context->is_ready ? "kept" : "reading",
                         .method = of.eviction.text(),
                         .budget = of.budget ? of.budget->text() : "",
                         .n_tokens = static_cast<std::int32_t>(context->tokens.size()),
                         .n_users = context->n_users,
                         .hits = context->n_hits,
                         .cache = context->statistics,
                         .bytes_promised = context->bytes()});
    }
    for (const std::unique_ptr<BatchJob>& job : running) {
      entries.push_back({.kind = BatchEntry::Kind::kRequest,
                         .id = job->id,
                         .state = job->answers.empty() ? "reading" : "answering",
                         .method = job->result.method,
                         .budget = job->result.budget,
                         .n_tokens = job->result.prompt_tokens,
                         .cache = job->result.cache,
                         .bytes_promised = job->bytes_reserved});
    }
  }
  const std::lock_guard lock(mutex);
  published = now;
  if (has_changed) published_entries = std::move(entries);
  has_changed = false;
}

}  // namespace winnow
