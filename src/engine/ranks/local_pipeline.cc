// Ranks that are threads of one process and exchange messages through queues.
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "winnow/pipeline.h"

namespace winnow {
namespace {

struct Queues {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> messages;  // by sender, receiver, channel
  std::string failure;                                                               // from the first rank that failed
};

class LocalLink final : public PipelineLink {
 public:
  LocalLink(std::shared_ptr<Queues> queues, int rank, int n_ranks)
      : queues_(std::move(queues)), rank_(rank), n_ranks_(n_ranks) {}

  int rank() const override { return rank_; }
  int n_ranks() const override { return n_ranks_; }

  void send(int to, int channel, std::span<const std::byte> message) override {
    const std::lock_guard lock(queues_->mutex);
    check();
    queues_->messages[{rank_, to, channel}].emplace_back(message.begin(), message.end());
    queues_->changed.notify_all();
  }

  std::vector<std::byte> receive(int from, int channel) override {
    std::unique_lock lock(queues_->mutex);
    auto& waiting = queues_->messages[{from, rank_, channel}];
    queues_->changed.wait(lock, [&] { return !waiting.empty() || !queues_->failure.empty(); });
    check();
    std::vector<std::byte> message = std::move(waiting.front());
    waiting.pop_front();
    return message;
  }

  void fail(const std::string& message) noexcept override {
    const std::lock_guard lock(queues_->mutex);
    if (queues_->failure.empty()) queues_->failure = "rank " + std::to_string(rank_) + " failed: " + message;
    queues_->changed.notify_all();
  }

 private:
  void check() const {
    if (!queues_->failure.empty()) throw PipelineError(ErrorCode::kIo, queues_->failure);
  }

  std::shared_ptr<Queues> queues_;
  int rank_, n_ranks_;
};

}  // namespace

std::vector<std::shared_ptr<PipelineLink>> local_pipeline(int n_ranks) {
  const auto queues = std::make_shared<Queues>();
  std::vector<std::shared_ptr<PipelineLink>> links;
  for (int rank = 0; rank < n_ranks; ++rank) links.push_back(std::make_shared<LocalLink>(queues, rank, n_ranks));
  return links;
}

}  // namespace winnow
