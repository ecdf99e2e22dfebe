// The inbox between a batch's thread and other threads: its queue limit, its end, and the events that wake the thread.
#include "batch/request_inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "expect_error.h"

namespace winnow::test {
namespace {

std::uint64_t submit(RequestInbox& inbox) { return inbox.submit(std::make_unique<BatchJob>()); }

TEST(RequestInbox, RefusesRequestsBeyondItsQueue) {
  const BatchOptions options{.n_parallel = 2, .max_queued = 1};
  RequestInbox inbox(options);
  for (int i = 0; i < 3; ++i) submit(inbox);  // two of them can start at once
  EXPECT_THROW(submit(inbox), QueueFull);
  EXPECT_EQ(inbox.statistics().refused, 1);
  EXPECT_EQ(inbox.take().jobs.size(), 3U);
  EXPECT_THROW(submit(inbox), QueueFull);  // taken requests wait until they are admitted
  inbox.note_admitted();
  submit(inbox);
  // A place whose request is being answered is not idle.
  inbox.publish({.n_answering = 1}, {});
  inbox.note_admitted();
  EXPECT_THROW(submit(inbox), QueueFull);
}

TEST(RequestInbox, DrainsOnceAllRequestsAreDone) {
  const BatchOptions options;
  RequestInbox inbox(options);
  const std::uint64_t id = submit(inbox);
  EXPECT_FALSE(inbox.drain(0));
  expect_error(ErrorCode::kCancelled, "shutting down", [&] { submit(inbox); });
  inbox.note_done(id, true);
  EXPECT_TRUE(inbox.drain(0));
  EXPECT_EQ(inbox.statistics().n_queued, 0);
}

TEST(RequestInbox, OnlyLiveRequestsAreCancelled) {
  const BatchOptions options;
  RequestInbox inbox(options);
  const std::uint64_t id = submit(inbox);
  EXPECT_EQ(inbox.take().jobs.size(), 1U);
  inbox.cancel(id + 1);
  EXPECT_FALSE(inbox.has_news());
  inbox.cancel(id);
  EXPECT_TRUE(inbox.has_news());
  EXPECT_EQ(inbox.take().cancelled, std::vector{id});
  inbox.note_done(id, false);
  inbox.cancel(id);
  EXPECT_FALSE(inbox.has_news());
}

TEST(RequestInbox, TheEndOfFileWorkWakesTheBatch) {
  const BatchOptions options;
  RequestInbox inbox(options);
  std::atomic<bool> is_over = false;
  std::thread work([&] { inbox.end_work(is_over); });
  inbox.wait({}, [&] { return is_over.load(); });
  work.join();
  EXPECT_TRUE(is_over);
  EXPECT_FALSE(inbox.has_news());
  inbox.wait(BatchClock::now(), [] { return false; });  // does not wait beyond the given time
}

TEST(RequestInbox, RequestsThatWereNotTakenAreReturnedAtTheEnd) {
  const BatchOptions options;
  RequestInbox inbox(options);
  submit(inbox);
  EXPECT_EQ(inbox.close().size(), 1U);
  expect_error(ErrorCode::kCancelled, "shutting down", [&] { submit(inbox); });
  EXPECT_FALSE(inbox.take().is_stopping);
  inbox.stop();
  EXPECT_TRUE(inbox.take().is_stopping);
}

}  // namespace
}  // namespace winnow::test
