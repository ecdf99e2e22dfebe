// Saved sessions continue bit for bit, and every other file gives an Error.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/fnv1a.h"
#include "cache/cache_test_support.h"
#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "sanitizers.h"

namespace winnow::test {
namespace {

std::vector<std::string> saved_methods() {
  std::vector<std::string> methods = {"full"};
  for (const std::string& method : session_methods()) methods.push_back(method);
  return methods;
}

class SavedSessionTest : public testing::TestWithParam<std::string> {
 protected:
  SessionOptions options() const { return GetParam() == "full" ? full_options() : evicting_options(GetParam(), "40"); }
};

TEST_P(SavedSessionTest, ContinuesBitForBit) {
  const TemporaryDirectory directory;
  const auto model = tiny_model();
  const auto engine = Engine::create(model, {.n_threads = 2});
  Session session = engine->open(options());
  session.prefill(random_tokens(100, 300, 1));
  decode_all(session, random_tokens(5, 300, 2));
  session.save(directory.file("session"));
  EXPECT_EQ(directory.names(), std::vector<std::string>{"session"});

  const auto other_engine = Engine::create(model, {.n_threads = 2});
  Session loaded = other_engine->load_session(directory.file("session"));
  EXPECT_EQ(state_of(loaded), state_of(session));
  EXPECT_EQ(logits_of(loaded), logits_of(session));
  EXPECT_EQ(loaded.options().eviction.text(), session.options().eviction.text());
  const std::vector<Token> later = random_tokens(10, 300, 3);
  EXPECT_EQ(decode_all(loaded, later), decode_all(session, later));

  // A later turn needs the queries that the session has saved.
  const std::vector<Token> turn = random_tokens(40, 300, 4);
  if (session.impl().evidence.needs().reconstruction_only) {
    for (Session* each : {&session, &loaded}) expect_error(ErrorCode::kUnsupported, [&] { each->prefill(turn); });
    return;
  }
  session.prefill(turn);
  loaded.prefill(turn);
  EXPECT_EQ(kept_positions(loaded), kept_positions(session));
  EXPECT_EQ(logits_of(loaded), logits_of(session));
  EXPECT_EQ(decode_all(loaded, later), decode_all(session, later));
}

INSTANTIATE_TEST_SUITE_P(Methods, SavedSessionTest, testing::ValuesIn(saved_methods()), method_test_name);

class SessionFileTest : public testing::Test {
 protected:
  SessionFileTest() {
    session_.prefill(random_tokens(70, 300, 1));
    session_.save(path_);
  }
  const TemporaryDirectory directory_;
  const std::string path_ = directory_.file("session");
  const std::shared_ptr<Engine> engine_ = Engine::create(tiny_model({.n_layer = 1, .head_dim = 16}), {.n_threads = 1});
  Session session_ = engine_->open(evicting_options("snapkv:window=8", "24"));
};

TEST_F(SessionFileTest, OptionsComeBack) {
  SessionOptions options = evicting_options("lava:window=4", "30");
  options.key_type = EntryType::kBF16;
  options.value_type = EntryType::kF16;
  options.n_ctx = 321;
  options.prefill_chunk = 77;
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 3;
  Session session = engine_->open(options);
  session.prefill(random_tokens(50, 300, 1));
  session.decode(4);  // one of three before the next cut
  session.save(path_);
  Session loaded = engine_->load_session(path_);
  EXPECT_EQ(loaded.options().key_type, EntryType::kBF16);
  EXPECT_EQ(loaded.options().value_type, EntryType::kF16);
  EXPECT_EQ(loaded.options().n_ctx, 321);
  EXPECT_EQ(loaded.options().prefill_chunk, 77);
  EXPECT_EQ(loaded.options().decode_cut, SessionOptions::DecodeCut::kTotal);
  EXPECT_EQ(loaded.options().cut_every, 3);
  EXPECT_EQ(loaded.options().budget->text(), "30");
  const std::vector<Token> later = random_tokens(8, 300, 3);
  EXPECT_EQ(decode_all(loaded, later), decode_all(session, later));
  EXPECT_EQ(kept_positions(loaded), kept_positions(session));
}

TEST_F(SessionFileTest, AnEmptySession) {
  engine_->open(full_options()).save(path_);
  Session loaded = engine_->load_session(path_);
  EXPECT_EQ(loaded.n_tokens(), 0);
  test::expect_error(ErrorCode::kInvalidArgument, "there are no logits", [&] { loaded.logits(); });
  loaded.prefill(random_tokens(10, 300, 1));
  EXPECT_EQ(loaded.n_tokens(), 10);
}

TEST_F(SessionFileTest, ASessionThatHasGoneBackHasNoLogits) {
  const auto engine = small_engine();
  const std::vector<Token> later = random_tokens(5, 300, 2);
  Session session = engine->open(full_options());
  session.prefill(random_tokens(60, 300, 1));
  session.truncate(40);
  const std::string path = directory_.file("gone back");
  session.save(path);
  Session loaded = engine->load_session(path);
  EXPECT_EQ(loaded.n_tokens(), 40);
  EXPECT_EQ(decode_all(loaded, later), decode_all(session, later));
}

TEST_F(SessionFileTest, EveryDamagedByteIsFound) {
  const std::string bytes = read_bytes(path_);
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < bytes.size(); at += at < 200 ? 1 : 97) places.push_back(at);
  places.push_back(bytes.size() - 1);
  for (const std::size_t at : places) {
    if (at >= 12 && at < 16) continue;  // reserved
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    const std::string path = directory_.write("damaged", damaged);
    expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
  }
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, session_.statistics().bytes_in_pages);
}

TEST_F(SessionFileTest, TruncatedOrTooLong) {
  const std::string bytes = read_bytes(path_);
  for (std::size_t n = 0; n < bytes.size(); n += n < 300 ? 1 : 509) {
    const std::string path = directory_.write("cut", bytes.substr(0, n));
    expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
  }
  const std::string path = directory_.write("long", bytes + "x");
  expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
}

// Returns a file of the body with a header that fits it, so that the checks after the checksum are reached.
std::string with_header_of(const std::string& saved, const std::string& body) {
  const std::uint64_t checksum = fnv1a(body);
  const std::uint64_t n_bytes = body.size();
  std::string file = saved.substr(0, 16);
  file.append(reinterpret_cast<const char*>(&n_bytes), sizeof(n_bytes));
  file.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return file + body;
}

constexpr std::size_t kHeaderBytes = 32;

TEST_F(SessionFileTest, NumbersBehindTheChecksumAreChecked) {
  const std::string bytes = read_bytes(path_);
  const std::size_t in_use = engine_->memory().kv_bytes_in_use;
  int n_refused = 0;
  for (std::size_t at = kHeaderBytes; at + 4 <= bytes.size(); at += at < 1000 ? 2 : 126) {
    for (const std::int32_t value : {0, -1, 0x7fffffff}) {
      std::string body = bytes.substr(kHeaderBytes);
      std::memcpy(body.data() + at - kHeaderBytes, &value, sizeof(value));
      const std::string path = directory_.write("changed", with_header_of(bytes, body));
      try {
        Session loaded = engine_->load_session(path);
        decode_all(loaded, random_tokens(2, 300, 1));
        loaded.append(random_tokens(3, 300, 1));
      } catch (const Error& error) {
        ++n_refused;
        EXPECT_GT(std::string(error.what()).size(), 20U);
      }
    }
  }
  EXPECT_GT(n_refused, 100);
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, in_use);
}

// A file is refused if it has a token outside the vocabulary, a context shorter than its tokens, or positions of tokens
// that were never fed.
TEST_F(SessionFileTest, TokensAndPositionsMustBeThose) {
  const std::string bytes = read_bytes(path_);
  const auto refuse = [&](const std::string& from, const std::string& to) {
    std::string body = bytes.substr(kHeaderBytes);
    const std::size_t at = body.find(from);
    ASSERT_NE(at, std::string::npos);
    body.replace(at, from.size(), to);
    const std::string path = directory_.write("changed", with_header_of(bytes, body));
    expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
  };
  const auto text_of = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  const std::vector<Token> tokens(session_.tokens().begin(), session_.tokens().end());
  std::vector<Token> other = tokens;
  other[7] = 300;
  refuse(text_of(tokens), text_of(other));
  const std::vector<std::int32_t> positions = session_.positions(0, 0);
  std::vector<std::int32_t> later = positions;
  later.back() = 70;
  refuse(text_of(positions), text_of(later));
  refuse(std::string("\0\0\x00\x08\0\0", 6), std::string("\0\0\x20\0\0\0", 6));  // n_ctx: 2,048 becomes 32
}

// A window of 10^9 rows would take 240 GB.
TEST_F(SessionFileTest, QueriesThatTheFileDoesNotHoldTakeNoMemory) {
  const std::string bytes = read_bytes(path_);
  std::string body = bytes.substr(kHeaderBytes);
  const std::string from = "window=8", to = "window=1000000000";
  const std::size_t at = body.find(from);
  ASSERT_NE(at, std::string::npos);
  body.replace(at, from.size(), to);
  const std::size_t length_at = body.find("snapkv") - sizeof(std::uint64_t);
  std::uint64_t length = 0;
  std::memcpy(&length, body.data() + length_at, sizeof(length));
  length += to.size() - from.size();
  std::memcpy(body.data() + length_at, &length, sizeof(length));
  const std::string path = directory_.write("changed", with_header_of(bytes, body));
  expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
}

TEST_F(SessionFileTest, NeitherWayTakesASecondCopy) {
  if (!kMeasuresResidentSize) GTEST_SKIP() << "the sanitizer hides what memory is taken";
  constexpr std::int32_t kTokens = 400'000;
  constexpr std::int64_t kAllowed = 16 << 20;
  std::int64_t n_bytes = 0;
  {
    SessionOptions options = full_options();
    options.n_ctx = 1 << 20;
    Session large = engine_->open(options);
    large.prefill(random_tokens(2, 300, 1));
    Session::Impl& impl = large.impl();
    for (int h = 0; h < impl.cache.shape().layer(0).n_kv_head; ++h) {
      impl.cache.extend(0, h, kTokens, 2);
      for (std::int32_t i = 2; i < kTokens + 2; ++i) {
        std::memset(impl.cache.key_row(0, h, i), i % 100, 64);
        std::memset(impl.cache.value_row(0, h, i), i % 90, 64);
      }
    }
    impl.tokens.resize(kTokens + 2, 5);
    n_bytes = static_cast<std::int64_t>(large.statistics().bytes_kept);
    ASSERT_GT(n_bytes, 6 * kAllowed);
    const std::int64_t before = peak_resident_bytes();
    large.save(path_);
    EXPECT_LT(peak_resident_bytes() - before, kAllowed);
  }
  // Under sanitizers freed memory stays for a while: every piece of the file.
  const std::int64_t quarantine = kHasSanitizers ? 2 * n_bytes : 0;
  const std::int64_t before = peak_resident_bytes();
  const Session loaded = engine_->load_session(path_);
  EXPECT_LT(peak_resident_bytes() - before, kAllowed + quarantine);
  EXPECT_EQ(static_cast<std::int64_t>(loaded.statistics().bytes_kept), n_bytes);
}

TEST_F(SessionFileTest, NotASession) {
  expect_error(ErrorCode::kNotFound, [&] { engine_->load_session(directory_.file("nowhere")); });
  expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(directory_.file(".")); });
  const std::string path = directory_.write("text", std::string(5000, 'x'));
  expect_error(ErrorCode::kBadFile, [&] { engine_->load_session(path); });
}

TEST_F(SessionFileTest, AnotherModel) {
  for (const TinyModelOptions& options :
       {TinyModelOptions{.n_layer = 1, .head_dim = 16, .seed = 2}, TinyModelOptions{.n_layer = 2, .head_dim = 16},
        TinyModelOptions{.architecture = "qwen3", .n_layer = 1, .head_dim = 16}}) {
    const auto other = Engine::create(tiny_model(options), {.n_threads = 1});
    expect_error(ErrorCode::kBadFile, [&] { other->load_session(path_); });
  }
}

// A file of version 7 knows its model by the tensors alone.
TEST_F(SessionFileTest, AnotherModelWithTheSameTensors) {
  const auto other = Engine::create(
      tiny_model({.n_layer = 1,
                  .head_dim = 16,
                  .edit_metadata = [](gguf_context* file) { gguf_set_val_f32(file, "llama.rope.freq_base", 500); }}),
      {.n_threads = 1});
  const std::uint64_t name = engine_->model()->info().fingerprint;
  ASSERT_EQ(other->model()->info().fingerprint, name);
  expect_error(ErrorCode::kBadFile, "with other metadata", [&] { other->load_session(path_); });

  std::string old = read_bytes(path_);
  const std::uint32_t version = 7;
  std::memcpy(old.data() + 8, &version, sizeof(version));
  std::memcpy(old.data() + kHeaderBytes, &name, sizeof(name));
  const std::string path = directory_.write("old", with_header_of(old, old.substr(kHeaderBytes)));
  for (const auto& engine : {engine_, other}) EXPECT_EQ(engine->load_session(path).n_tokens(), 70);
}

TEST_F(SessionFileTest, BeyondTheByteLimit) {
  const auto small = Engine::create(engine_->model(), {.n_threads = 1, .kv_bytes_limit = 4096});
  expect_error(ErrorCode::kOutOfMemory, [&] { small->load_session(path_); });
  EXPECT_EQ(small->memory().kv_bytes_in_use, 0U);
}

TEST_F(SessionFileTest, NowhereToWrite) {
  expect_error(ErrorCode::kIo, [&] { session_.save(directory_.file("no-such-directory/session")); });
  expect_error(ErrorCode::kIo, [&] { session_.save(directory_.file(".")); });
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"session"});
}

// The child's writes end after a few hundred bytes, with an error or with its death.
TEST_F(SessionFileTest, AFailedOrKilledSaveLosesNothing) {
  const std::string before = read_bytes(path_);
  session_.decode(5);
  for (const bool is_killed : {false, true}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      signal(SIGXFSZ, is_killed ? SIG_DFL : SIG_IGN);
      const rlimit limit{500, 500};
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        session_.save(path_);
      } catch (const Error& error) {
        _exit(error.code() == ErrorCode::kIo ? 3 : 4);
      }
      _exit(5);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (is_killed) {
      ASSERT_TRUE(WIFSIGNALED(status));
      EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
    } else {
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 3);
      EXPECT_EQ(directory_.names(), std::vector<std::string>{"session"});
    }
    EXPECT_EQ(read_bytes(path_), before);
    EXPECT_EQ(engine_->load_session(path_).n_tokens(), 70);
  }
  session_.save(path_);
  EXPECT_EQ(engine_->load_session(path_).n_tokens(), 71);
}

}  // namespace
}  // namespace winnow::test
