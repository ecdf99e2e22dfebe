// Saved contexts outlive the process: they are restored, and refused where they are damaged.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "batch/batch_test_support.h"
#include "batch/context_seal.h"
#include "batch/prefix_files.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

namespace fs = std::filesystem;

class SavedContextsTest : public BatchTest {
 protected:
  BatchOptions options() {
    BatchOptions options{.context_bytes = std::size_t{16} << 20, .cache_dir = folder_.file("cache")};
    options.on_warning = [this](const std::string& text) { warnings_.push_back(text); };
    return options;
  }
  // Returns the number of cached tokens of a request with the seed's context. Only the context is saved.
  std::int32_t ask(Batch& batch, std::uint32_t seed, std::vector<Token>* answer = nullptr) {
    Listener listener;
    BatchRequest request = batch_request(300, 7, seed, batch_options("snapkv:window=8", "25%"), 6);
    request.reuse = Reuse::kExact;
    batch.submit(request, listener.callbacks());
    const std::int32_t cached = listener.wait().cached_tokens;
    if (answer != nullptr) *answer = listener.answer();
    return cached;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.file("cache")))
      if (entry.path().extension() == ".context") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  void wait_for_files(std::size_t n) const {
    wait_until([&] { return files().size() >= n; });
  }

  const TemporaryDirectory folder_;
  std::vector<std::string> warnings_;
};

TEST_F(SavedContextsTest, ComeBackAfterARestart) {
  std::vector<Token> before, after;
  {
    const auto batch = make_batch(options());
    EXPECT_EQ(ask(*batch, 1, &before), 0);
    EXPECT_EQ(ask(*batch, 2), 0);
  }
  EXPECT_EQ(files().size(), 2U);
  const auto batch = make_batch(options());
  EXPECT_EQ(batch->entries().size(), 2U);
  EXPECT_EQ(ask(*batch, 1, &after), 300);
  EXPECT_EQ(ask(*batch, 2), 300);
  EXPECT_EQ(after, before);
  EXPECT_TRUE(warnings_.empty());
}

// When a session is opened, it fills in the options that its method leaves open (the types of auto's entries).
TEST_F(SavedContextsTest, OfEveryKindComeBack) {
  for (const auto& [method, budget] :
       {std::pair("full", ""), std::pair("auto", "5%bytes"), std::pair("auto-fast", "5%bytes"),
        std::pair("auto:bits=own", "20%"), std::pair("lava", "64KiB")}) {
    BatchRequest request = batch_request(600, 7, 1, batch_options(method, budget), 6);
    {
      const auto batch = make_batch(options());
      Listener listener;
      batch->submit(request, listener.callbacks());
      EXPECT_EQ(listener.wait().cached_tokens, 0) << method;
    }
    request.prompt = random_tokens(9, 300, 77);
    const auto batch = make_batch(options());
    Listener listener;
    batch->submit(request, listener.callbacks());
    EXPECT_EQ(listener.wait().cached_tokens, 600) << method;
    EXPECT_TRUE(warnings_.empty()) << method << ": " << warnings_[0];
  }
}

// Sliding windows and recurrent states cannot be truncated to where prompts branch: the snapshot there is saved.
TEST_F(SavedContextsTest, WhereThereIsNoWayBackPromptsGoOnFromWhereTheyPart) {
  for (const char* architecture : {"gemma3", "qwen35", "llama"}) {
    SCOPED_TRACE(architecture);
    const TinyModel file(tiny_options(architecture));
    const auto model = Model::load(file.path());
    const int n_vocab = model->info().n_vocab;
    BatchOptions folder = options();
    folder.cache_dir = folder_.file(architecture);
    const auto ask = [&](const BatchOptions& batch_options, const std::vector<std::uint32_t>& users) {
      Batch batch(Engine::create(model, {.n_threads = 1, .n_batch = 64}), batch_options);
      std::vector<std::pair<std::int32_t, std::vector<Token>>> replies;
      for (const std::uint32_t user : users) {
        BatchRequest request = batch_request(0, 1, 0, {}, 6);
        request.prompt = random_tokens(150, n_vocab, 1);
        std::vector<Token> tail = random_tokens(100, n_vocab, 10 + user);
        tail[0] = static_cast<Token>(5 + user);
        request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
        Listener listener;
        batch.submit(request, listener.callbacks());
        const std::int32_t cached = listener.wait().cached_tokens;
        replies.emplace_back(cached, listener.answer());
      }
      return replies;
    };
    ask(folder, {0, 1});
    const auto restored = ask(folder, {2, 3});
    EXPECT_EQ(restored[0].first, 150);
    EXPECT_EQ(restored[1].first, 150);
    EXPECT_EQ(restored[0].second, ask({}, {2})[0].second);
    EXPECT_TRUE(warnings_.empty());
  }
}

TEST_F(SavedContextsTest, DamagedFilesArePassedOver) {
  {
    const auto batch = make_batch(options());
    for (const std::uint32_t seed : {1U, 2U, 3U, 4U}) ask(*batch, seed);
  }
  std::vector<fs::path> saved = files();
  ASSERT_EQ(saved.size(), 4U);
  fs::resize_file(saved[0], fs::file_size(saved[0]) / 2);
  {
    std::fstream file(saved[1], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(saved[1]) / 2));
    file.put('\x55');
    file.put('\xaa');
  }
  fs::rename(saved[2], saved[2].parent_path() / "0123456789abcdef-300.context");  // a wrong name
  const std::string killed = saved[3].string() + ".tmp.0123456789abcdef", running = saved[3].string() + ".tmp.1";
  for (const std::string& path : {killed, running}) std::ofstream(path) << "half a context";
  fs::last_write_time(killed, fs::file_time_type::clock::now() - std::chrono::hours(2));
  const auto batch = make_batch(options());
  EXPECT_EQ(warnings_.size(), 3U);
  EXPECT_EQ(batch->entries().size(), 1U);
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(running));  // another server, maybe on another machine, may be writing it
  int n_cached = 0;
  for (const std::uint32_t seed : {1U, 2U, 3U, 4U}) n_cached += ask(*batch, seed) > 0;
  EXPECT_EQ(n_cached, 1);
}

TEST_F(SavedContextsTest, AreForTheirUserAlone) {
  {
    const auto batch = make_batch(options());
    ask(*batch, 1);
  }
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(fs::status(folder_.file("cache")).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(files()[0]).permissions(), fs::perms::owner_read | fs::perms::owner_write);

  fs::permissions(folder_.file("cache"), fs::perms::others_read, fs::perm_options::add);
  try {
    make_batch(options());
    FAIL() << "a folder that is open to others was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("chmod 700"), std::string::npos);
  }
}

TEST_F(SavedContextsTest, OthersFilesArePassedOver) {
  {
    const auto batch = make_batch(options());
    for (const std::uint32_t seed : {1U, 2U, 3U}) ask(*batch, seed);
  }
  const std::string cache = folder_.file("cache");
  const fs::path own = folder_.file("own");
  fs::rename(cache, own);
  {
    const auto batch = make_batch(options());  // another user's folder, with the same contexts
    for (const std::uint32_t seed : {1U, 2U, 3U}) ask(*batch, seed);
  }
  const std::vector<fs::path> theirs = files();
  ASSERT_EQ(theirs.size(), 3U);
  EXPECT_EQ(fs::status(cache + "/key").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::file_size(cache + "/key"), 32U);
  fs::copy_file(own / "key", cache + "/key", fs::copy_options::overwrite_existing);
  // One file has their seal, one has none, and one has ours: only the last was written by this folder's owner.
  fs::remove(theirs[1].string() + ".seal");
  for (const char* more : {"", ".seal"}) {
    fs::copy_file((own / theirs[2].filename()).string() + more, theirs[2].string() + more,
                  fs::copy_options::overwrite_existing);
  }
  const auto batch = make_batch(options());
  ASSERT_EQ(warnings_.size(), 2U);
  for (const std::string& warning : warnings_) {
    EXPECT_NE(warning.find("skipped"), std::string::npos) << warning;
    EXPECT_NE(warning.find("this folder's key"), std::string::npos) << warning;
  }
  EXPECT_EQ(batch->entries().size(), 1U);
}

TEST_F(SavedContextsTest, ServersThatStartTogetherHaveOneKey) {
  for (int round = 0; round < 20; ++round) {
    const std::string folder = folder_.file("shared" + std::to_string(round));
    fs::create_directory(folder);
    const std::string file = folder + "/x.context";
    std::ofstream(file) << "text";
    std::vector<std::unique_ptr<ContextSeal>> seals(8);
    std::vector<std::thread> threads;
    for (auto& seal : seals) threads.emplace_back([&] { seal = std::make_unique<ContextSeal>(folder); });
    for (std::thread& thread : threads) thread.join();
    seals[0]->seal(file, file);
    for (const auto& seal : seals) EXPECT_NO_THROW(seal->check(file));
    std::ofstream(file, std::ios::app) << ".";
    test::expect_error(ErrorCode::kBadFile, "was not written with this folder's key", [&] { seals[1]->check(file); });
  }
}

TEST_F(SavedContextsTest, AKeyThatOthersKnowIsRefused) {
  const std::string key = folder_.file("key");
  const ContextSeal seal(folder_.file(""));
  fs::permissions(key, fs::perms::group_read, fs::perm_options::add);
  test::expect_error(ErrorCode::kBadFile, "is open to others", [&] { ContextSeal(folder_.file("")); });
  fs::permissions(key, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_NO_THROW(ContextSeal(folder_.file("")));
  fs::resize_file(key, 31);
  test::expect_error(ErrorCode::kBadFile, "is damaged", [&] { ContextSeal(folder_.file("")); });
  fs::resize_file(key, std::uintmax_t{1} << 40);
  test::expect_error(ErrorCode::kBadFile, "is larger than 32 bytes", [&] { ContextSeal(folder_.file("")); });
}

TEST_F(SavedContextsTest, AreNotReadBeyondTheMemoryForThem) {
  { make_batch(options()); }
  const std::string path = folder_.file("cache") + "/0123456789abcdef-300.context";
  { std::ofstream(path) << "x"; }
  fs::resize_file(path, std::uintmax_t{1} << 40);  // sparse
  make_batch(options());
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("larger than the memory"), std::string::npos) << warnings_[0];
}

// A context that requests use stays in memory until they end, also if it is larger than the memory for contexts.
TEST_F(SavedContextsTest, AreNotSavedIfTheyExceedTheMemoryForThem) {
  BatchOptions small = options();
  small.context_bytes = 60 << 10;  // the context takes more, as in OutliveTheContextInMemory
  {
    const auto batch = make_batch(small);
    BatchRequest request = batch_request(300, 7, 1, batch_options("snapkv:window=8", "25%"), 6);
    request.reuse = Reuse::kExact;
    Listener listener;
    listener.wants_token = [is_first = true](const BatchToken&) mutable {
      // A busy batch saves a context that is 2 s old.
      if (std::exchange(is_first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
      return true;
    };
    batch->submit(request, listener.callbacks());
    listener.wait();
  }
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SavedContextsTest, OutliveTheContextInMemory) {
  // The 75 tokens of 300 take 6 heads with 3 pages or more of 4,160 bytes.
  BatchOptions small = options();
  small.context_bytes = 150 << 10;
  const auto batch = make_batch(small);
  std::vector<Token> before, after;
  ask(*batch, 1, &before);
  for (const std::uint32_t seed : {2U, 3U, 4U}) {
    wait_for_files(seed - 1);  // a context that is removed before it was saved is lost
    ask(*batch, seed);
  }
  wait_for_files(4);
  EXPECT_GT(batch->statistics().contexts_removed, 0);
  EXPECT_EQ(ask(*batch, 1, &after), 300);
  EXPECT_EQ(after, before);
  // At the start the contexts that fit are loaded; the others are loaded when a request needs them.
  const auto again = make_batch(small);
  EXPECT_LT(again->entries().size(), 4U);
  for (const std::uint32_t seed : {1U, 2U, 3U, 4U}) EXPECT_EQ(ask(*again, seed), 300);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SavedContextsTest, WhatWasNotUsedForLongestMakesRoomInTheFolder) {
  BatchOptions limited = options();
  {
    const auto batch = make_batch(limited);
    ask(*batch, 1);
  }
  limited.cache_dir_bytes = fs::file_size(files().at(0)) * 5 / 2;
  {
    const auto batch = make_batch(limited);
    ask(*batch, 2);
    wait_for_files(2);
    EXPECT_EQ(ask(*batch, 1), 300);
    ask(*batch, 3);
  }
  EXPECT_EQ(files().size(), 2U);
  const auto batch = make_batch(limited);
  EXPECT_EQ(ask(*batch, 1), 300);
  EXPECT_EQ(ask(*batch, 2), 0);
  EXPECT_TRUE(warnings_.empty());
}

// Another server that shares the folder has removed a file for room: a prefix that is used here is saved again.
TEST_F(SavedContextsTest, AreSavedAgainWhereTheirFileIsGone) {
  const auto batch = make_batch(options());
  ask(*batch, 1);
  wait_for_files(1);
  fs::remove(files()[0]);
  EXPECT_GE(ask(*batch, 1), 300);
  wait_for_files(1);
  EXPECT_EQ(ask(*make_batch(options()), 1), 300);
}

TEST_F(SavedContextsTest, ConversationsAreSavedWhileNothingElseHappens) {
  BatchOptions quick = options();
  quick.save_after_s = 0.2;
  const auto batch = make_batch(quick);
  Listener listener;
  batch->submit(batch_request(0, 100, 1, batch_options(), 6), listener.callbacks());
  listener.wait();
  wait_for_files(1);
}

TEST_F(SavedContextsTest, ServersThatStartTogetherMakeOneFolder) {
  for (int round = 0; round < 20; ++round) {
    const std::string folder = folder_.file("new" + std::to_string(round)) + "/contexts/";
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { EXPECT_NO_THROW(PrefixFiles(nullptr, folder, {}, {})); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  }
}

// Each of two servers with one folder finds the prefixes that the other has read, also while both run.
TEST_F(SavedContextsTest, AreFoundByAnotherServer) {
  const auto first = make_batch(options());
  const auto engine = engine_;
  const auto second = make_batch(options());
  EXPECT_EQ(ask(*first, 1), 0);
  wait_for_files(1);
  EXPECT_EQ(ask(*second, 1), 300);
  EXPECT_EQ(second->statistics().prompt_tokens, 7);
  EXPECT_TRUE(warnings_.empty());
}

// A conversation that continues on another server hits the prefix that the first one saved.
TEST_F(SavedContextsTest, ConversationsAreFoundByAnotherServer) {
  const auto n_conversations = [&] {  // with their answers: 300 + 20 + 5 tokens, since the last one is not read
    const std::vector<fs::path> all = files();
    return std::count_if(all.begin(), all.end(),
                         [](const fs::path& path) { return path.stem().string().ends_with("-325"); });
  };
  for (const auto& [method, budget] : {std::pair("full", ""), std::pair("snapkv:window=8", "25%")}) {
    BatchOptions quick = options();
    quick.save_after_s = 0.01;
    const auto first = make_batch(quick);
    const auto second = make_batch(options());
    const auto n_before = n_conversations();
    BatchRequest request = batch_request(300, 20, 1, batch_options(method, budget), 6);
    Listener listener;
    first->submit(request, listener.callbacks());
    listener.wait();
    wait_until([&] { return n_conversations() != n_before; });
    for (const std::vector<Token>& more : {request.prompt, listener.answer()}) {
      request.context.insert(request.context.end(), more.begin(), more.end());
    }
    Listener other;
    second->submit(request, other.callbacks());
    EXPECT_EQ(other.wait().cached_tokens, 320 + 6 - 1) << method;
  }
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SavedContextsTest, ConversationsGoOnAfterARestart) {
  BatchRequest request = batch_request(300, 20, 1, batch_options("snapkv:window=8", "25%"), 6);
  {
    const auto batch = make_batch(options());
    Listener listener;
    batch->submit(request, listener.callbacks());
    listener.wait();
    request.context.insert(request.context.end(), request.prompt.begin(), request.prompt.end());
    const std::vector<Token> answer = listener.answer();
    request.context.insert(request.context.end(), answer.begin(), answer.end());
  }
  const auto batch = make_batch(options());
  Listener listener;
  batch->submit(request, listener.callbacks());
  EXPECT_EQ(listener.wait().cached_tokens, 320 + 6 - 1);
  EXPECT_TRUE(warnings_.empty());
}

}  // namespace
}  // namespace winnow::test
