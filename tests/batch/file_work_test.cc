// Files of cached prefixes are searched for, read and written on separate threads, so that requests without such files
// go on meanwhile.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "batch/batch_test_support.h"

namespace winnow::test {
namespace {

namespace fs = std::filesystem;

constexpr int kContext = 300, kPrompt = 7;

// Holds the folder's lock, as another server does while it writes. No file of the folder is read or written meanwhile.
class HeldFolder {
 public:
  explicit HeldFolder(const std::string& folder)
      : descriptor_(open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(flock(descriptor_, LOCK_EX), 0);
  }
  ~HeldFolder() { close(descriptor_); }
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

 private:
  int descriptor_;
};

// A fixture with two servers: the first one saves a prefix, and the second one, which started before that, is asked for
// it.
class FileWorkTest : public BatchTest {
 protected:
  BatchOptions options() {
    BatchOptions options{.context_bytes = std::size_t{16} << 20, .cache_dir = folder_};
    options.on_warning = [this](const std::string& text) { warnings_.push_back(text); };
    return options;
  }
  static BatchRequest request(std::uint32_t seed, int n_context = kContext) {
    BatchRequest request = batch_request(kContext, kPrompt, seed, batch_options(), 6);
    request.context.resize(static_cast<std::size_t>(n_context));
    return request;
  }
  // Returns a request that has no saved prefix and keeps none.
  static BatchRequest other_request() {
    BatchRequest request = batch_request(0, 20, 99, batch_options(), 6);
    request.keep = false;
    return request;
  }
  static std::vector<Token> answer_of(Batch& batch, const BatchRequest& request) {
    Listener listener;
    batch.submit(request, listener.callbacks());
    listener.wait();
    return listener.answer();
  }
  std::string file_of(int n_tokens) const {
    std::string found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      if (entry.path().filename().string().ends_with("-" + std::to_string(n_tokens) + ".context")) found = entry.path();
    }
    return found;
  }
  void damage(const std::string& path) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
    file.put('\x55');
    file.put('\xaa');
  }
  void save(const BatchRequest& request) {
    answer_ = answer_of(*first_, request);
    wait_until([&] { return !file_of(static_cast<int>(request.context.size())).empty(); });
  }
  // Stops all reading and writing of files until release().
  void hold() { held_.emplace(folder_); }
  void release() { held_.reset(); }
  std::uint64_t ask(Listener& listener, const BatchRequest& asked = request(1)) {
    return second_->submit(asked, listener.callbacks());
  }
  // Waits until the second batch has reserved memory, then expects it to answer another request while the earlier ones
  // wait.
  void expect_others_go_on() {
    wait_until([&] { return second_->statistics().bytes_reserved > 0; });
    EXPECT_EQ(answer_of(*second_, other_request()).size(), 6U);
  }

  const TemporaryDirectory directory_;
  const std::string folder_ = directory_.file("cache");
  std::vector<std::string> warnings_;
  std::unique_ptr<Batch> first_ = make_batch(options());
  std::unique_ptr<Batch> second_ = make_batch(options());  // its engine is engine_
  std::optional<HeldFolder> held_;
  std::vector<Token> answer_;
};

// A fixture with a request that waits for its saved prefix, whose file is read when the folder is released.
class FileLoadTest : public FileWorkTest {
 protected:
  void SetUp() override {
    save(request(1));
    hold();
    id_ = ask(listener_);
    expect_others_go_on();
    EXPECT_FALSE(listener_.is_done());
  }
  void TearDown() override { EXPECT_TRUE(warnings_.empty()); }

  Listener listener_;
  std::uint64_t id_ = 0;
};

TEST_F(FileLoadTest, OthersGoOn) {
  EXPECT_GE(second_->statistics().bytes_reserved, fs::file_size(file_of(kContext)));
  release();
  EXPECT_EQ(listener_.wait().cached_tokens, kContext);
  EXPECT_EQ(listener_.answer(), answer_);
}

TEST_F(FileLoadTest, WhatNobodyWaitsForAnyMoreIsDropped) {
  second_->cancel(id_);
  EXPECT_EQ(listener_.wait().reason, FinishReason::kCancelled);
  release();
  wait_until([&] { return second_->statistics().bytes_reserved == 0; });
  EXPECT_TRUE(second_->entries().empty());
  EXPECT_EQ(bytes_in_use(), 0U);
}

TEST_F(FileLoadTest, WhoeverStillWaitsGetsWhatAnotherHasGivenUp) {
  Listener listeners[2];
  const std::uint64_t other = ask(listeners[0]);
  expect_others_go_on();
  second_->cancel(id_);
  EXPECT_EQ(listener_.wait().reason, FinishReason::kCancelled);
  second_->cancel(other);  // the last request that waited
  EXPECT_EQ(listeners[0].wait().reason, FinishReason::kCancelled);
  ask(listeners[1]);
  expect_others_go_on();
  release();
  EXPECT_EQ(listeners[1].wait().cached_tokens, kContext);
  EXPECT_EQ(listeners[1].answer(), answer_);
}

TEST_F(FileLoadTest, TheEndComes) {
  std::thread end([&] { second_.reset(); });
  EXPECT_EQ(listener_.wait().reason, FinishReason::kCancelled);
  release();
  end.join();
  EXPECT_EQ(bytes_in_use(), 0U);
}

// The counts are taken on the batch's thread, which computes at least one decode step for each slice.
TEST_F(FileWorkTest, OthersGoOnWhileTheFolderIsLookedThrough) {
  constexpr int kFiles = 15'000, kContextNow = 100;
  constexpr std::size_t kMostSlices = 25;  // more slices than so short a prompt takes
  for (int i = 0; i < kFiles; ++i) {
    std::ofstream(folder_ + "/" + std::to_string(i) + "-" + std::to_string(kContextNow) + ".context");
  }
  Listener going, asking;
  BatchRequest long_answer = other_request();
  long_answer.max_tokens = 2000;
  const std::uint64_t id = ask(going, long_answer);
  going.wait_for_tokens(1);
  std::size_t n_before = 0, n_after = 0;
  BatchCallbacks callbacks = asking.callbacks();
  callbacks.on_accept = [&] { n_before = going.tokens().size(); };
  asking.wants_token = [&](const BatchToken& /*token*/) {
    n_after = n_after == 0 ? going.tokens().size() : n_after;
    return true;
  };
  second_->submit(request(1, kContextNow), callbacks);
  EXPECT_EQ(asking.wait().cached_tokens, 0);
  EXPECT_GT(n_after, n_before + kMostSlices);
  second_->cancel(id);
  going.wait();
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(FileWorkTest, ContextsThatSeveralWaitForAreLoadedOnce) {
  save(request(1));
  save(request(2, kContext - 1));
  hold();
  Listener listeners[4];
  for (int i = 0; i < 4; ++i) {
    BatchRequest asked = i < 3 ? request(1) : request(2, kContext - 1);  // the last one waits for another file
    asked.prompt = random_tokens(kPrompt, 300, static_cast<std::uint32_t>(70 + i));
    ask(listeners[i], asked);
  }
  expect_others_go_on();
  release();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(listeners[i].wait().cached_tokens, i < 3 ? kContext : kContext - 1);
  EXPECT_EQ(second_->statistics().prompt_tokens, 4 * kPrompt + 20);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(FileWorkTest, ADamagedContextIsReadAnew) {
  save(request(1));
  damage(file_of(kContext));
  hold();
  Listener listeners[2];
  for (Listener& listener : listeners) ask(listener);
  expect_others_go_on();
  release();
  EXPECT_EQ(listeners[0].wait().cached_tokens, 0);
  EXPECT_EQ(listeners[1].wait().cached_tokens, kContext);  // the first request has read it
  for (const Listener& listener : listeners) EXPECT_EQ(listener.answer(), answer_);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("skipped"), std::string::npos) << warnings_[0];
}

TEST_F(FileWorkTest, BehindADamagedContextAShorterOneIsTaken) {
  save(request(1, 150));
  save(request(1));
  damage(file_of(kContext));
  Listener listener;
  ask(listener);
  EXPECT_EQ(listener.wait().cached_tokens, 150);
  EXPECT_EQ(listener.answer(), answer_);
  EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(FileWorkTest, OthersGoOnWhileAContextIsSaved) {
  hold();
  answer_of(*second_, request(1));
  wait_until([&] {  // the file is written and waits for the lock before it gets its name
    const fs::directory_iterator files(folder_);
    return std::any_of(begin(files), end(files), [](const fs::directory_entry& entry) {
      return entry.path().filename().string().find(".context.tmp.") != std::string::npos;
    });
  });
  expect_others_go_on();
  EXPECT_TRUE(file_of(kContext).empty());
  release();
  wait_until([&] { return !file_of(kContext).empty(); });
  Listener listener;
  first_->submit(request(1), listener.callbacks());
  EXPECT_EQ(listener.wait().cached_tokens, kContext);
  EXPECT_TRUE(warnings_.empty());
}

}  // namespace
}  // namespace winnow::test
