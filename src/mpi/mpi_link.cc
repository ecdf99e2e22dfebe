#include "mpi/mpi_link.h"

#include <pthread.h>

#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// MPI's own C++ interface, which has been removed from the standard, is left out.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "winnow/error.h"

namespace winnow::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOnTheWay = std::size_t{16} << 20;
constexpr int kFailure = 32767;  // the tag of a message that a rank has failed; every MPI allows tags up to this one

// A PipelineLink over MPI. Received messages are sorted by sender and channel, so that ranks may receive in another
// order than others send.
class MpiLink final : public PipelineLink {
 public:
  MpiLink() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks_);
    sender_ = std::thread([this] { push_sent(); });
  }
  ~MpiLink() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    has_sent_.notify_all();
    sender_.join();
  }

  int rank() const override { return rank_; }
  int n_ranks() const override { return n_ranks_; }

  void send(int to, int channel, std::span<const std::byte> message) override {
    if (message.size() > INT_MAX) {
      throw Error(ErrorCode::kUnsupported,
                  "a message of " + std::to_string(message.size()) + " bytes is too long for MPI: use a smaller -b");
    }
    std::unique_lock lock(mutex_);
    while (receive_one()) {  // takes failures of other ranks, and makes room for their messages
    }
    check();
    begin_send(to, channel, message);
    // Waits if too many bytes are on the way: copies of all rows of a long prompt would double their memory. A rank
    // that waits receives what comes, so that ranks cannot wait for each other in a circle.
    for (const Clock::time_point start = Clock::now(); bytes_on_the_way() > kMostOnTheWay; check()) {
      if (!receive_one()) pause(start, lock);
    }
  }

  std::vector<std::byte> receive(int from, int channel) override {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& waiting = inbox_[{from, channel}];
    const Clock::time_point start = Clock::now();
    while (waiting.empty()) {
      check();
      if (receive_one()) continue;
      pause(start, lock);
    }
    check();
    std::vector<std::byte> message = std::move(waiting.front());
    waiting.pop_front();
    return message;
  }

  void fail(const std::string& message) noexcept override {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) return;
    try {
      failure_ = "rank " + std::to_string(rank_) + " failed: " + message;
      for (int to = 0; to < n_ranks_; ++to) {
        if (to != rank_) begin_send(to, kFailure, std::as_bytes(std::span(failure_)));
      }
      // Waits only 1 s, since others may be busy for long and receive it later: launchers end a run whose rank is gone.
      wait_for_sent(std::chrono::seconds(1), lock);
    } catch (...) {
      failure_ = "a rank failed";
    }
  }

  // Returns the right to call MPI, which one thread at a time has.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // Waits until MPI has completed all sends, for at most `most`. Returns whether it has.
  bool wait_for_sent(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return wait_for_sent(most, lock);
  }

 private:
  struct Sent {
    std::vector<std::byte> message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool wait_for_sent(std::chrono::milliseconds most, std::unique_lock<std::mutex>& lock) {
    const Clock::time_point start = Clock::now();
    while (!sent_.empty() && Clock::now() - start < most) {
      receive_one();
      pause(start, lock);
    }
    return sent_.empty();
  }

  // Keeps sends going while this rank computes, since MPI sends most of a long message only while it is called.
  void push_sent() {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      has_sent_.wait(lock, [&] { return is_ending_ || !sent_.empty(); });
      const Clock::time_point start = Clock::now();
      while (!is_ending_ && !sent_.empty()) {
        drop_sent();
        const bool is_long = Clock::now() - start > std::chrono::seconds(1);
        lock.unlock();
        std::this_thread::sleep_for(is_long ? std::chrono::microseconds(2000) : std::chrono::microseconds(50));
        lock.lock();
      }
    }
  }

  void check() const {
    if (!failure_.empty()) throw PipelineError(ErrorCode::kIo, failure_);
  }

  void begin_send(int to, int channel, std::span<const std::byte> message) {
    Sent& sent = sent_.emplace_back();
    sent.message.assign(message.begin(), message.end());
    MPI_Isend(sent.message.data(), static_cast<int>(sent.message.size()), MPI_BYTE, to, channel, MPI_COMM_WORLD,
              &sent.request);
    drop_sent();
    if (!sent_.empty()) has_sent_.notify_one();
  }

  std::size_t bytes_on_the_way() const {
    std::size_t n = 0;
    for (const Sent& sent : sent_) n += sent.message.size();
    return n;
  }

  void drop_sent() {
    sent_.remove_if([](Sent& sent) {
      int is_done = 0;
      MPI_Test(&sent.request, &is_done, MPI_STATUS_IGNORE);
      return is_done != 0;
    });
  }

  // Receives a message if there is one. Returns whether there was.
  bool receive_one() {
    drop_sent();
    int is_there = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &message, &status);
    if (is_there == 0) return false;
    int n_bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &n_bytes);
    std::vector<std::byte> bytes(static_cast<std::size_t>(n_bytes));
    MPI_Mrecv(bytes.data(), n_bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    if (status.MPI_TAG != kFailure) {
      inbox_[{status.MPI_SOURCE, status.MPI_TAG}].push_back(std::move(bytes));
    } else if (failure_.empty()) {
      failure_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return true;
  }

  // Leaves the processor to ranks that compute, which may be on the same machine. A rank that has waited for long waits
  // for the next request to a server, and sleeps longer so that it costs next to no time.
  static void pause(Clock::time_point since, std::unique_lock<std::mutex>& lock) {
    const Clock::duration waited = Clock::now() - since;
    lock.unlock();
    if (waited < std::chrono::microseconds(300)) {
      std::this_thread::yield();
    } else if (waited < std::chrono::seconds(1)) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    lock.lock();
  }

  std::mutex mutex_;  // MPI is called by one thread at a time
  std::condition_variable has_sent_;
  int rank_ = 0, n_ranks_ = 1;
  std::list<Sent> sent_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> inbox_;  // by sender and channel
  std::string failure_;                                                      // of the first rank that failed
  bool is_ending_ = false;
  std::thread sender_;  // last: it uses all of the above
};

std::shared_ptr<MpiLink> the_link;

}  // namespace

std::shared_ptr<PipelineLink> start() {
  // Signals that a command waits for are blocked, so that MPI's own threads and the link's do not take them.
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  int provided = 0;
  const int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  const bool is_ready = result == MPI_SUCCESS && provided >= MPI_THREAD_SERIALIZED;
  if (is_ready) the_link = std::make_shared<MpiLink>();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!is_ready) {
    throw Error(ErrorCode::kUnsupported,
                "this MPI does not allow calls from several threads, one at a time: use another MPI");
  }
  return the_link;
}

void finish() {
  while (!the_link->wait_for_sent(std::chrono::hours(1))) {
  }
  MPI_Finalize();
}

void give_up(int exit_code) {
  // MPI_Abort may wait for a launcher that does not answer. The launcher ends the other ranks once this one has ended.
  std::thread([exit_code] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::_Exit(exit_code);
  }).detach();
  const auto no_other_call = the_link->lock();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace winnow::mpi
