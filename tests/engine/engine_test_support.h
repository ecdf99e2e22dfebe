// Helpers of the engine's tests: tiny models, sessions on them, and the state that a session keeps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache/ragged_cache.h"
#include "engine/cpu/cpu_executor.h"
#include "engine/engine_impl.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/log_softmax.h"
#include "winnow/session.h"

namespace winnow::test {

inline std::shared_ptr<const Model> tiny_model(const TinyModelOptions& options = {}) {
  const TinyModel file(options);  // the mapping outlives the file
  return Model::load(file.path());
}

// Returns the device on which device tests compute: "host", the test device, unless the environment names another.
inline const TinyModelOptions kSmallModel{.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 16, .seed = 3};

inline std::shared_ptr<Engine> small_engine() {
  return Engine::create(tiny_model(kSmallModel), {.n_threads = 2, .n_batch = 48});
}

// Returns an engine whose head size q8_0 takes.
inline std::shared_ptr<Engine> wide_engine(int n_threads = 2) {
  return Engine::create(tiny_model({.n_layer = 3, .n_head = 4, .n_kv_head = 2, .head_dim = 32, .seed = 3}),
                        {.n_threads = n_threads, .n_batch = 64});
}

inline std::string device_under_test() {
  const char* name = std::getenv("WINNOW_TEST_DEVICE");
  return name == nullptr ? "host" : name;
}

// Returns options with what devices can store.
inline SessionOptions for_device(SessionOptions options) {
  options.key_type = options.value_type = EntryType::kF16;
  options.eviction.fit = Fit::kNone;
  return options;
}

// Returns the executor of an engine without a pipeline.
inline CpuExecutor& cpu_executor(Engine::Impl& engine) { return dynamic_cast<CpuExecutor&>(*engine.executor); }

inline SessionOptions full_options() {
  SessionOptions options;
  options.key_type = EntryType::kF32;
  options.value_type = EntryType::kF32;
  return options;
}

inline SessionOptions evicting_options(const std::string& method, const std::string& budget) {
  SessionOptions options = full_options();
  options.eviction = EvictionOptions::parse(method);
  options.eviction.bits = {};  // codes have tests of their own
  options.budget = Budget::parse(budget);
  return options;
}

// Returns a method's name as a part of a test's name.
inline std::string method_test_name(const testing::TestParamInfo<std::string>& test) {
  std::string name;
  for (const char c : test.param.substr(0, test.param.find(':')))
    name += c == '-' ? "_" : c == '+' ? "_plus" : std::string(1, c);
  return name;
}

// Returns every preset that a session can use without a file; each of them must open.
inline std::vector<std::string> session_methods() {
  const auto engine = Engine::create(tiny_model({.n_layer = 1}), {.n_threads = 1});
  std::vector<std::string> methods;
  for (const MethodInfo& info : eviction_methods()) {
    if (!info.options.evicts() || info.options.reads_head_file() || info.options.reads_profile()) continue;
    engine->open(evicting_options(info.name, "64"));
    methods.push_back(info.name);
  }
  return methods;
}

using HeadPositions = std::vector<std::vector<std::int32_t>>;  // [n_layer * n_kv_head] positions, ascending

inline HeadPositions kept_positions(const Session& session) {
  const CacheShape& shape = session.impl().cache.shape();
  HeadPositions all;
  for (int l = 0; l < shape.n_layer(); ++l) {
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h) all.push_back(session.positions(l, h));
  }
  return all;
}

// The number of entries that one session keeps, and of those that another does not.
struct MissingEntries {
  std::size_t n_expected = 0, n = 0;
  double fraction() const { return static_cast<double>(n) / static_cast<double>(n_expected); }
};
inline MissingEntries missing_entries(const HeadPositions& expected, const HeadPositions& actual) {
  MissingEntries missing;
  for (std::size_t h = 0; h < expected.size(); ++h) {
    missing.n_expected += expected[h].size();
    for (const std::int32_t p : expected[h]) {
      missing.n += std::find(actual[h].begin(), actual[h].end(), p) == actual[h].end() ? 1 : 0;
    }
  }
  return missing;
}

// Returns the mean KL divergence of rows of logits, nats.
inline double mean_kl(std::span<const std::vector<float>> reference, std::span<const std::vector<float>> logits) {
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) sum += kl_divergence(reference[i], logits[i]);
  return sum / static_cast<double>(reference.size());
}

inline std::vector<float> logits_of(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

// Returns the logits after each of these tokens, fed one by one.
inline std::vector<std::vector<float>> decode_all(Session& session, std::span<const Token> tokens) {
  std::vector<std::vector<float>> logits;
  for (const Token token : tokens) {
    session.decode(token);
    logits.push_back(logits_of(session));
  }
  return logits;
}

// The state of a session that must not change when a call fails.
struct SessionState {
  std::vector<Token> tokens;
  HeadPositions positions;
  std::int64_t prompt_tokens;
  std::int64_t decoded_tokens;
  std::size_t bytes_in_pages;
  bool operator==(const SessionState&) const = default;
};

inline SessionState state_of(const Session& session) {
  const SessionStatistics statistics = session.statistics();
  return {.tokens = {session.tokens().begin(), session.tokens().end()},
          .positions = kept_positions(session),
          .prompt_tokens = statistics.prompt_tokens,
          .decoded_tokens = statistics.decoded_tokens,
          .bytes_in_pages = statistics.bytes_in_pages};
}

// Returns the visible state of a session: its file, which holds entries, tokens, saved queries and logits.
inline std::string file_of(const Session& session, const TemporaryDirectory& directory) {
  if (session.n_tokens() == 0) return "";
  session.save(directory.file("state"));
  return read_bytes(directory.file("state"));
}

inline void expect_error(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_GT(std::string(error.what()).size(), 20U);
  }
}

inline std::size_t entries_in_pages(const SessionStatistics& statistics) {
  std::size_t n_pages = 0;
  for (const auto& layer : statistics.kept) {
    for (const std::int32_t n : layer) n_pages += static_cast<std::size_t>((n + kPageEntries - 1) / kPageEntries);
  }
  return n_pages;
}

}  // namespace winnow::test
