// Session files of a model that several ranks hold have the bytes that one engine writes, and any number of ranks loads
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/fnv1a.h"
#include "engine/pipeline_test_support.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

using FirstLayers = std::vector<int>;  // of every rank but the first one

// The result of a program on one engine or on several ranks: every rank's observations and errors.
struct Outcome {
  std::vector<Seen> seen;
  std::vector<std::string> errors;
};

Outcome run_on(const std::shared_ptr<const Model>& model, const FirstLayers& first_layers, const Program& program) {
  Outcome run{.seen = std::vector<Seen>(first_layers.size() + 1), .errors = {}};
  if (first_layers.empty()) {
    run.errors = {""};
    run.seen[0] = program(*Engine::create(model, {.n_threads = 1, .n_batch = kBatch}));
    return run;
  }
  run.errors = on_ranks(static_cast<int>(run.seen.size()), [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, rank_options(link, first_layers));
    run.seen[static_cast<std::size_t>(link->rank())] = program(*engine);
  });
  return run;
}

Session begun(Engine& engine, const SessionOptions& options, int n_prompt) {
  const int n_vocab = engine.model()->info().n_vocab;
  Session session = engine.open(options);
  session.prefill(random_tokens(n_prompt, n_vocab, 4));
  for (const Token token : {5, 9, 11}) session.decode(token);
  return session;
}

Seen gone_on(Session session) {
  Seen seen;
  seen.look(session);
  for (const Token token : {7, 3}) session.decode(token);
  seen.look(session);
  session.append(random_tokens(40, 250, 8));
  seen.look(session);
  // A later turn's cut depends on the queries and scores that the session has saved.
  if (!session.impl().evidence.needs().reconstruction_only) session.prefill(random_tokens(60, 250, 9));
  seen.look(session);
  return seen;
}

void expect_one_file(const std::shared_ptr<const Model>& model, const SessionOptions& options,
                     const std::vector<FirstLayers>& splits, int n_prompt) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("alone");
  const Outcome alone = run_on(model, {}, [&](Engine& engine) {
    Session session = begun(engine, options, n_prompt);
    session.save(path);
    return gone_on(std::move(session));
  });
  const std::string bytes = read_bytes(path);
  for (const FirstLayers& split : splits) {
    SCOPED_TRACE(split.size() + 1);
    const std::string shared = directory.file("shared" + std::to_string(split.size()));
    const Outcome saved = run_on(model, split, [&](Engine& engine) {
      Session session = begun(engine, options, n_prompt);
      session.save(shared);
      return gone_on(std::move(session));
    });
    EXPECT_TRUE(read_bytes(shared) == bytes) << "ranks write what one process does";
    const Outcome loaded = run_on(model, split, [&](Engine& engine) { return gone_on(engine.load_session(path)); });
    for (const Outcome* run : {&saved, &loaded}) {
      EXPECT_EQ(run->errors, std::vector<std::string>(split.size() + 1));
      for (const Seen& seen : run->seen) EXPECT_TRUE(seen == alone.seen[0]);
    }
  }
  EXPECT_EQ(directory.names().size(), splits.size() + 1) << "nothing is left behind";
}

TEST(PipelineFiles, AreThoseOfOneProcess) {
  const auto model = tiny_model({.n_layer = 5});
  const std::vector<FirstLayers> splits = {{3}, {1, 4}};
  expect_one_file(model, full_options(), splits, 150);
  for (const char* method : {"snapkv", "expected-attention", "h2o", "lava", "kvzip+"}) {
    SCOPED_TRACE(method);
    expect_one_file(model, evicting_options(method, "30%"), splits, 150);
  }
}

TEST(PipelineFiles, HoldCodesAndScores) {
  const auto model = tiny_model({.n_layer = 4, .n_head = 4, .n_kv_head = 2, .head_dim = 32, .seed = 3});
  for (const char* method : {"auto:repeat=always", "snapkv:bits=8:0.3,4"}) {
    SCOPED_TRACE(method);
    SessionOptions options;
    options.eviction = EvictionOptions::parse(method);
    options.budget = Budget::parse("20%bytes");
    expect_one_file(model, options, {{2}, {1, 3}}, 500);
  }
}

// The layers have sliding windows, recurrent states, latents, or no entries of their own.
TEST(PipelineFiles, HoldEveryKindOfLayer) {
  const auto is_plain = [](const LayerSpec& layer) {
    return layer.kind == LayerKind::kFullAttention && layer.sliding_window == 0 && layer.key_dim == layer.value_dim;
  };
  int n_models = 0;
  for (const TinyArchitecture& architecture : tiny_architectures()) {
    if (architecture.name == "deci") continue;  // only libllama has it
    const auto model = tiny_model(tiny_options(architecture.name));
    const std::vector<LayerSpec>& layers = model->impl().spec.layers;
    if (std::all_of(layers.begin(), layers.end(), is_plain)) continue;
    SCOPED_TRACE(architecture.name);
    expect_one_file(model, full_options(), {{1}}, 40);
    ++n_models;
  }
  EXPECT_GE(n_models, 4);
}

TEST(PipelineFiles, HoldASessionThatWasNotFed) {
  const auto model = tiny_model({.n_layer = 3});
  const TemporaryDirectory directory;
  const std::string path = directory.file("empty");
  const Outcome run = run_on(model, {1}, [&](Engine& engine) {
    engine.open(full_options()).save(path);
    Session loaded = engine.load_session(path);
    EXPECT_EQ(loaded.n_tokens(), 0);
    loaded.prefill(random_tokens(10, 250, 1));
    Seen seen;
    seen.look(loaded);
    return seen;
  });
  EXPECT_EQ(run.errors, std::vector<std::string>(2));
  EXPECT_EQ(Engine::create(model, {.n_threads = 1})->load_session(path).n_tokens(), 0);
}

// All ranks throw the same error and then go on.
class PipelineFileErrors : public testing::Test {
 protected:
  PipelineFileErrors() { begun(*Engine::create(model_, {.n_threads = 1}), full_options(), 100).save(path_); }

  // Returns the messages that `body` throws on each of three ranks.
  std::vector<std::string> messages(ErrorCode code, const std::function<void(Engine&, Session&)>& body,
                                    std::size_t limit_of_last = 0) {
    std::vector<std::string> all(3);
    const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
      EngineOptions options = rank_options(link, {1, 3});
      if (link->rank() == 2) options.kv_bytes_limit = limit_of_last;
      const auto engine = Engine::create(model_, options);
      Session session = engine->open(full_options());
      session.prefill(random_tokens(20, 250, 1));
      try {
        body(*engine, session);
        ADD_FAILURE() << "no error";
      } catch (const PipelineError& error) {
        ADD_FAILURE() << "the ranks cannot go on: " << error.what();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        all[static_cast<std::size_t>(link->rank())] = error.what();
      }
      session.decode(3);
      EXPECT_EQ(session.statistics().kept.size(), 4U);
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
    EXPECT_EQ(all[1], all[0]);
    EXPECT_EQ(all[2], all[0]);
    return all;
  }

  const std::shared_ptr<const Model> model_ = tiny_model({.n_layer = 4});
  const TemporaryDirectory directory_;
  const std::string path_ = directory_.file("session");
};

TEST_F(PipelineFileErrors, OfAFileThatIsNotThere) {
  messages(ErrorCode::kNotFound, [&](Engine& engine, Session&) { engine.load_session(directory_.file("nowhere")); });
  messages(ErrorCode::kIo, [&](Engine&, Session& session) { session.save(directory_.file("no/folder")); });
  messages(ErrorCode::kIo, [&](Engine&, Session& session) { session.save(directory_.file(".")); });
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"session"});
}

// Damage is found even if the checksum fits, in the parts of the first, the middle and the last rank.
TEST_F(PipelineFileErrors, OfADamagedFile) {
  const std::string bytes = read_bytes(path_);
  constexpr std::size_t kHeader = 32, kChecksumAt = 24;
  std::vector<std::int32_t> positions(32);
  std::iota(positions.begin(), positions.end(), 32);  // of the second page of each of eight heads
  const std::string page(reinterpret_cast<const char*>(positions.data()), positions.size() * sizeof(positions[0]));
  int n_pages = 0;
  for (std::size_t at = bytes.find(page); at != std::string::npos; at = bytes.find(page, at + 1)) {
    std::string file = bytes;
    file[at + 4] = 0;
    const auto load = [&](Engine& engine, Session&) { engine.load_session(directory_.file("damaged")); };
    directory_.write("damaged", file);
    EXPECT_NE(messages(ErrorCode::kBadFile, load)[0].find("checksum"), std::string::npos);
    const std::uint64_t checksum = fnv1a(file.substr(kHeader));
    std::memcpy(file.data() + kChecksumAt, &checksum, sizeof(checksum));
    directory_.write("damaged", file);
    EXPECT_NE(messages(ErrorCode::kBadFile, load)[0].find("order"), std::string::npos);
    ++n_pages;
  }
  EXPECT_EQ(n_pages, 8);
}

TEST_F(PipelineFileErrors, OfARankWithoutMemory) {
  Session large = begun(*Engine::create(model_, {.n_threads = 1}), full_options(), 600);
  large.save(path_);
  const std::vector<std::string> said = messages(
      ErrorCode::kOutOfMemory, [&](Engine& engine, Session&) { engine.load_session(path_); }, 200 << 10);
  EXPECT_TRUE(said[0].starts_with("rank 2: ")) << said[0];
}

// If a rank is gone, a save writes no file and leaves the old one as it was.
TEST_F(PipelineFileErrors, OfARankThatIsGone) {
  const std::string before = read_bytes(path_);
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model_, rank_options(link, {2}));
    Session session = begun(*engine, full_options(), 300);
    if (link->rank() == 1) throw Error(ErrorCode::kInternal, "gone");
    session.save(path_);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"rank 1 failed: gone", "gone"}));
  EXPECT_EQ(read_bytes(path_), before);
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"session"});
}

}  // namespace
}  // namespace winnow::test
