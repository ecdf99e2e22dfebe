// Sessions on the test device (device/host_device.h), whose memory faults when the processor accesses it, or on that of
// WINNOW_TEST_DEVICE, compared with sessions on the processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "engine/engine_test_support.h"
#include "engine/prefill/late_repeat.h"
#include "eviction/evidence/entry_statistics.h"
#include "model/tiny_architectures.h"
#include "sanitizers.h"
#include "winnow/layer_evidence.h"
#include "winnow/log_softmax.h"
#include "winnow/observe.h"
#include "winnow/registry.h"

namespace winnow::test {
namespace {

// Products round activations differently on the device, and its attention weights are float16.
constexpr double kMostKl = 5e-4;

std::shared_ptr<Engine> engine_on(const std::string& device, const std::shared_ptr<const Model>& model,
                                  PrefillWeights prefill_weights = PrefillWeights::kAuto) {
  EngineOptions options{.n_threads = 2, .n_batch = 48, .prefill_weights = prefill_weights};
  options.device = device;
  return Engine::create(model, options);
}

// Returns a small model: a large head size and vocabulary are not needed to find wrong addresses.
TinyModelOptions small() { return {}; }

class DeviceExecutorTest : public testing::Test {
 protected:
  const std::shared_ptr<const Model> model_ = tiny_model(small());
  const std::shared_ptr<Engine> host_ = engine_on("cpu", model_), device_ = engine_on(device_under_test(), model_);
  const std::vector<Token> prompt_ = random_tokens(100, 300, 1), more_ = random_tokens(40, 300, 2);
};

TEST_F(DeviceExecutorTest, PromptsStepsAndTurnsAreThoseOfTheProcessor) {
  Session expected = host_->open(for_device(full_options())), session = device_->open(for_device(full_options()));
  expected.prefill(prompt_);
  session.prefill(prompt_);
  EXPECT_LT(kl_divergence(logits_of(expected), logits_of(session)), kMostKl);
  const auto logits = decode_all(expected, more_), own = decode_all(session, more_);
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_LT(kl_divergence(logits[i], own[i]), kMostKl) << i;
  expected.append(more_);
  session.append(more_);
  EXPECT_LT(kl_divergence(logits_of(expected), logits_of(session)), kMostKl);
  EXPECT_EQ(kept_positions(session), kept_positions(expected));
}

// Expects a step of several sequences, and others of one, to match the processor's. Both round activations to 8 bits
// for quantised weights, in different ways.
void expect_steps_of_the_processor(const TinyModelOptions& options, double most_kl) {
  constexpr std::size_t kSequences = 3, kSteps = 4;
  const std::shared_ptr<const Model> model = tiny_model(options);
  const std::vector<Token> prompt = random_tokens(20, options.n_vocab, 5);
  const std::vector<Token> tokens = random_tokens(kSequences * kSteps, options.n_vocab, 6);
  std::vector<std::vector<float>> logits[2];
  for (const bool on_device : {false, true}) {
    const std::shared_ptr<Engine> engine = engine_on(on_device ? device_under_test() : "cpu", model);
    std::vector<Session> sessions;
    for (std::size_t s = 0; s < kSequences; ++s) {
      sessions.push_back(engine->open(for_device(full_options())));
      sessions.back().prefill(std::span(prompt).first(8 + 6 * s));
    }
    for (std::size_t step = 0; step < kSteps; ++step) {
      Session* const of_step[] = {&sessions[0], &sessions[1], &sessions[2]};
      const std::size_t n = step < 2 ? kSequences : 1;
      engine->decode(std::span(of_step).first(n), std::span(tokens).subspan(step * kSequences, n));
      for (std::size_t s = 0; s < n; ++s) logits[on_device ? 1 : 0].push_back(logits_of(sessions[s]));
    }
  }
  for (std::size_t i = 0; i < logits[0].size(); ++i) EXPECT_LT(kl_divergence(logits[0][i], logits[1][i]), most_kl) << i;
}

TEST_F(DeviceExecutorTest, StepsReadWeightsOfEveryType) {
  TinyModelOptions options = small();
  options.n_layer = 1, options.n_head = 4, options.n_kv_head = 2, options.head_dim = 64;
  options.n_embd = options.n_ff = 256;
  constexpr double kMostOfEightBits = 5e-3;
  for (const int type : {1, 2, 3, 8, 12, 13, 14, 20, 30}) {  // ggml's numbers; winnow has no kernel for 20, iq4_nl
    SCOPED_TRACE(type);
    options.weight_type = type;
    const bool is_float = type == 1 || type == 30;
    expect_steps_of_the_processor(options, is_float ? kMostKl : kMostOfEightBits);
  }
  SCOPED_TRACE("mixed");
  options.type_of = [](const std::string& name) { return name.find("attn_v") != std::string::npos ? 14 : 12; };
  expect_steps_of_the_processor(options, kMostOfEightBits);
  options.type_of = [](const std::string& name) { return name.find("attn_k") != std::string::npos ? 20 : 8; };
  expect_steps_of_the_processor(options, kMostOfEightBits);
  options.type_of = nullptr;
  options.n_expert = 5;
  for (const int n_used : {1, 2}) {
    for (const int type : {12, 39}) {  // q4_K, mxfp4
      SCOPED_TRACE("experts");
      options.n_expert_used = n_used, options.expert_weight_type = type;
      expect_steps_of_the_processor(options, kMostOfEightBits);
    }
  }
}

TEST_F(DeviceExecutorTest, StepsOfArchitecturesAreThoseOfTheProcessor) {
  for (const char* architecture : {"qwen2", "qwen3", "gemma2", "phi3", "cohere2", "qwen2moe", "qwen3moe", "olmoe",
                                   "granitemoe", "gpt-oss", "gemma4"}) {
    SCOPED_TRACE(architecture);
    TinyModelOptions options = tiny_options(architecture);
    options.n_layer = std::min(options.n_layer, 2);
    if (options.per_layer_embedding_dim > 0) {  // gemma4's models with experts have none
      options.per_layer_embedding_dim = 0, options.n_shared_layers = 0;
      options.n_expert = 7, options.n_expert_used = 3, options.expert_n_ff = 38;
    }
    expect_steps_of_the_processor(options, kMostKl);
  }
}

TEST_F(DeviceExecutorTest, PromptsOverConvertedWeightsAreThoseOfTheProcessor) {
  for (const char* architecture : {"gemma2", "qwen3", "qwen2moe", "gpt-oss"}) {
    TinyModelOptions options = tiny_options(architecture);
    options.n_layer = std::min(options.n_layer, 2);
    options.weight_type = 1;                                // f16
    if (options.shared_n_ff > 0) options.shared_n_ff = 88;  // whole groups of 8 are converted
    const std::shared_ptr<const Model> model = tiny_model(options);
    const std::vector<Token> prompt = random_tokens(120, options.n_vocab, 7);
    Session expected = engine_on("cpu", model)->open(for_device(full_options()));
    Session session = engine_on(device_under_test(), model, PrefillWeights::kBf16)->open(for_device(full_options()));
    expected.prefill(prompt);
    session.prefill(prompt);
    EXPECT_LT(kl_divergence(logits_of(expected), logits_of(session)), 1e-3) << architecture;
  }
}

TEST_F(DeviceExecutorTest, ASequenceIsTheSameAloneAndInABatch) {
  const auto fresh = [&](std::int32_t n) {
    Session session = device_->open(for_device(full_options()));
    session.prefill(std::span(prompt_).first(static_cast<std::size_t>(n)));
    return session;
  };
  Session left = fresh(30), right = fresh(75), left_alone = fresh(30), right_alone = fresh(75);
  const auto left_logits = decode_all(left_alone, std::span(more_).first(8));
  const auto right_logits = decode_all(right_alone, std::span(more_).subspan(8, 8));
  for (std::size_t i = 0; i < 8; ++i) {
    Session* const sessions[] = {&left, &right};
    const Token tokens[] = {more_[i], more_[8 + i]};
    device_->decode(sessions, tokens);
    EXPECT_LT(kl_divergence(left_logits[i], logits_of(left)), kMostKl) << i;
    EXPECT_LT(kl_divergence(right_logits[i], logits_of(right)), kMostKl) << i;
  }
}

TEST_F(DeviceExecutorTest, ForksDoNotSeeEachOther) {
  Session parent = device_->open(for_device(full_options())), alone = device_->open(for_device(full_options()));
  constexpr std::size_t kSteps = 12;
  const std::vector<Token> prompt =
      random_tokens(2 * kPageEntries - kSteps / 2, 300, 1);  // steps cross the end of a page
  parent.prefill(prompt);
  alone.prefill(prompt);
  Session fork = parent.fork();
  for (std::size_t i = 0; i < kSteps; ++i) {
    parent.decode(more_[i]);
    fork.decode(more_[kSteps - 1 - i]);
    alone.decode(more_[i]);
    ASSERT_EQ(logits_of(parent), logits_of(alone)) << i;
  }
}

TEST_F(DeviceExecutorTest, FilesGoFromOneToTheOther) {
  const std::string path = testing::TempDir() + "device_session";
  Session session = device_->open(for_device(full_options()));
  session.prefill(prompt_);
  session.save(path);
  Session on_host = host_->load_session(path), on_device = device_->load_session(path);
  const auto expected = decode_all(session, std::span(more_).first(5));
  EXPECT_EQ(decode_all(on_device, std::span(more_).first(5)), expected);
  const auto logits = decode_all(on_host, std::span(more_).first(5));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_LT(kl_divergence(expected[i], logits[i]), kMostKl) << i;
}

TEST_F(DeviceExecutorTest, WhatIsNotSupportedSaysSo) {
  SessionOptions half_codes = full_options();  // the values are f32
  half_codes.key_type = EntryType::kR4;
  expect_error(ErrorCode::kUnsupported, [&] { device_->open(half_codes); });
  SessionOptions f32 = full_options();
  expect_error(ErrorCode::kUnsupported, [&] { device_->open(f32); });
  expect_error(ErrorCode::kInvalidArgument, [&] { engine_on("gpu", model_); });
}

// The device's 4 MiB hold the model and a short prompt.
TEST_F(DeviceExecutorTest, ALossIsMeasuredAsOnTheProcessor) {
  const std::vector<Token> prompt = random_tokens(280, 300, 4);
  for (const char* method : {"auto", "kvzip"}) {
    SCOPED_TRACE(method);
    LossPromise promises[2];
    std::string budget = "kl=10";  // then less than the smallest cut loses
    for (int round = 0; round < 2; ++round) {
      for (const bool on_device : {false, true}) {
        Session session = (on_device ? device_ : host_)->open(for_device(evicting_options(method, budget)));
        session.prefill(prompt);
        promises[on_device ? 1 : 0] = session.statistics().promise.value();
        EXPECT_LE(promises[on_device ? 1 : 0].expected, promises[on_device ? 1 : 0].asked);
      }
      ASSERT_FALSE(promises[0].tried.empty());
      ASSERT_EQ(promises[0].tried.size(), promises[1].tried.size());
      for (std::size_t i = 0; i < promises[0].tried.size(); ++i) {
        EXPECT_NEAR(promises[0].tried[i].kl, promises[1].tried[i].kl, .1 * promises[0].tried[i].kl);
      }
      budget = "kl=" + std::to_string(0.9 * promises[0].tried[0].kl);
    }
    EXPECT_GE(promises[0].tried.size(), 2U);
    if (kHasSanitizers) break;  // half a minute a method
  }
}

TEST_F(DeviceExecutorTest, APromptThatDoesNotFitChangesNothing) {
  if (device_under_test() != "host") GTEST_SKIP() << "only the test device can be made small";
  const std::shared_ptr<Engine> small = engine_on("host:4", model_);
  Session session = small->open(for_device(full_options())), other = small->open(for_device(full_options()));
  other.prefill(prompt_);
  const SessionState before = state_of(session);
  const std::size_t in_use = small->memory().kv_bytes_in_use;
  expect_error(ErrorCode::kOutOfMemory, [&] { session.prefill(random_tokens(1900, 300, 3)); });
  EXPECT_EQ(state_of(session), before);
  EXPECT_EQ(small->memory().kv_bytes_in_use, in_use);
  Session expected = device_->open(for_device(full_options()));
  session.prefill(prompt_);
  expected.prefill(prompt_);
  EXPECT_EQ(logits_of(session), logits_of(expected));
}

TEST_F(DeviceExecutorTest, ALimitMayBeAShareOfTheDevicesMemory) {
  if (device_under_test() != "host") GTEST_SKIP() << "only the test device's memory has no other users";
  const auto engine_with = [&](double share) {
    EngineOptions options{.n_threads = 2, .kv_limit_share = share};
    options.device = "host:64";
    return Engine::create(model_, options);
  };
  const std::shared_ptr<Engine> half = engine_with(0.5);
  const FreeMemory memory = half->free_memory();
  EXPECT_EQ(memory.bytes_total, std::size_t{64} << 20);
  EXPECT_LT(memory.bytes_free, memory.bytes_total);  // which has the weights
  EXPECT_EQ(half->memory().kv_bytes_limit, memory.bytes_free / 2);
  Session session = half->open(for_device(full_options()));
  session.prefill(prompt_);
  EXPECT_LT(half->free_memory().bytes_free, memory.bytes_free);
  EXPECT_EQ(engine_with(0)->memory().kv_bytes_limit, 0U);
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    expect_error(ErrorCode::kInvalidArgument, [&] { engine_with(share); });
  }
}

// An observer of a layer reads its rows, wherever they lie.
TEST_F(DeviceExecutorTest, ObserversSeeWhatTheProcessorShows) {
  const EvidenceNeeds needs = {
      .log_sum_exp = true, .all_queries = true, .output_projection = true, .reconstruction_pass = true};
  std::vector<std::vector<float>> seen[2];
  for (const bool on_device : {false, true}) {
    Session session = (on_device ? device_ : host_)->open(for_device(full_options()));
    const auto look = [&](const LayerView& view, const ParallelFor& parallel_for) {
      ASSERT_EQ(view.statistics, nullptr);
      ASSERT_FALSE(view.passes.empty());
      LayerEvidence evidence(view, for_device(full_options()).eviction, 0, parallel_for);
      const std::size_t row = static_cast<std::size_t>(view.n_head * view.shape.key_dim);
      std::vector<std::vector<float>>& rows = seen[on_device ? 1 : 0];
      rows.emplace_back(view.all_q, view.all_q + static_cast<std::size_t>(view.n_query_rows) * row);
      const ReconstructionPass& pass = view.passes.back();
      rows.emplace_back(pass.q, pass.q + static_cast<std::size_t>(pass.n_rows) * row);
      rows.emplace_back(view.w_o, view.w_o + row);
      rows.push_back(evidence.key_l2_norms().back());
      rows.push_back(evidence.projected_value_norms().back());
    };
    prefill_observed(session, prompt_, {.needs = needs, .on_layer = look});
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  for (std::size_t i = 0; i < seen[0].size(); ++i) {
    ASSERT_EQ(seen[0][i].size(), seen[1][i].size());
    double difference = 0, square = 0;
    for (std::size_t j = 0; j < seen[0][i].size(); ++j) {
      const auto x = static_cast<double>(seen[0][i][j]);
      difference += std::pow(x - static_cast<double>(seen[1][i][j]), 2);
      square += x * x;
    }
    EXPECT_LT(difference, 1e-3 * square) << i;  // queries of rounded activations
  }
}

// Expects that the same entries are kept and the same tokens follow on the device as on the processor
void expect_same_cut(const std::shared_ptr<const Model>& model, const std::string& method) {
  const SessionOptions options = for_device(evicting_options(method, "40"));
  const std::vector<Token> prompt = random_tokens(120, 300, 5), more = random_tokens(12, 300, 6);
  Session expected = engine_on("cpu", model)->open(options);
  Session session = engine_on(device_under_test(), model)->open(options);
  expected.prefill(prompt);
  session.prefill(prompt);
  const HeadPositions wanted = kept_positions(expected), kept = kept_positions(session);
  ASSERT_EQ(wanted.size(), kept.size());
  const MissingEntries missing = missing_entries(wanted, kept);
  EXPECT_LE(missing.fraction(), .02);  // scores that differ in the last bits change their order
  if (missing.n > 0) return;           // the logits of other entries differ
  const auto logits = decode_all(expected, more), own = decode_all(session, more);
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_LT(kl_divergence(logits[i], own[i]), 1e-3) << i;
}

// Compares the measures of a layer's keys with those of copies on the processor.
class ComparedKeys final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    EXPECT_NE(evidence.layer().key_scales, nullptr);
    const LayerView view = with_copies(evidence.layer());
    const ParallelFor serial = [](int n, const std::function<void(int)>& body) {
      for (int i = 0; i < n; ++i) body(i);
    };
    LayerEvidence copied(view, options, 0, serial);
    LayerScores scores = evidence.key_l2_norms();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      const auto head = static_cast<std::size_t>(h);
      for (std::size_t i = 0; i < scores[head].size(); ++i) {
        EXPECT_NEAR(scores[head][i] / copied.key_l2_norms()[head][i], 1, 1e-5F);
        EXPECT_NEAR(evidence.mean_key_cosines()[head][i], copied.mean_key_cosines()[head][i], 1e-4F);
      }
      scores[head].resize(static_cast<std::size_t>(evidence.n_prefix(h)));
    }
    return scores;
  }
};

// Keys of models with biases are stored multiplied (model/balanced_pairs.h), and measured as the model makes them.
TEST_F(DeviceExecutorTest, KeysAreMeasuredAsTheModelMakesThem) {
  register_scorer("compared-keys", std::make_unique<ComparedKeys>());
  SessionOptions options = for_device(evicting_options("snapkv:scorer=compared-keys", "40"));
  Session session = engine_on(device_under_test(), tiny_model(with_balanced_layers()))->open(options);
  session.prefill(prompt_);
}

// A prompt so long that the rows of its late repeat see only a part of it.
TEST_F(DeviceExecutorTest, ALateRepeatSeesWhatItDoesOnTheProcessor) {
  if (kHasSanitizers) GTEST_SKIP() << "takes too long with sanitizers";
  const auto model = tiny_model({.n_layer = 2, .n_head = 2, .n_kv_head = 1, .head_dim = 16});
  const SessionOptions options = for_device(evicting_options("auto:bits=own,fit=none,repeat=late", "10%"));
  const std::vector<Token> prompt = random_tokens(1300, 300, 8);
  HeadPositions kept[2];
  for (const bool on_device : {false, true}) {
    Session session = engine_on(on_device ? device_under_test() : "cpu", model)->open(options);
    session.prefill(prompt);
    kept[on_device ? 1 : 0] = kept_positions(session);
  }
  ASSERT_EQ(kept[0].size(), kept[1].size());
  EXPECT_LE(missing_entries(kept[0], kept[1]).fraction(), .02);
}

// In gemma2's first layer, whose entries are not cut, the rows of kvzip's repeat are kept alone, in the next one the
// prompt's, too, which h2o reads. The moments of expected-attention leave out some rows of the first batch, or all.
TEST_F(DeviceExecutorTest, SessionsOfOnePrefillKeepDifferentRows) {
  TinyModelOptions tiny = tiny_options("gemma2");
  tiny.n_layer = 2;
  const std::shared_ptr<Engine> engine = engine_on(device_under_test(), tiny_model(tiny));
  const std::vector<Token> prompt = random_tokens(120, tiny.n_vocab, 5);
  std::vector<Session> together, alone;
  for (const char* method : {"h2o", "kvzip", "expected-attention", "expected-attention:ea-skip=60"}) {
    for (std::vector<Session>* sessions : {&together, &alone}) {
      sessions->push_back(engine->open(for_device(evicting_options(method, "40"))));
    }
    alone.back().prefill(prompt);
  }
  std::vector<Session*> pointers;
  for (Session& session : together) pointers.push_back(&session);
  engine->prefill(pointers, prompt);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i])) << i;
    EXPECT_EQ(logits_of(together[i]), logits_of(alone[i])) << i;
  }
}

TEST(LateRepeat, SeesWhatIsNearLastOnADevice) {
  const std::vector<std::vector<std::int32_t>> everywhere = {{0, 3, 5, 9, 20}, {}};
  const RepeatedPart part = {.near_first = 4, .near_end = 8};
  EXPECT_EQ(entries_seen_near_last(everywhere, part),
            (std::vector<std::vector<std::int32_t>>{{0, 3, 5, 9, 20, 4, 6, 7}, {4, 5, 6, 7}}));
  std::vector<std::vector<std::int32_t>> sorted = entries_seen_near_last(everywhere, part);
  for (std::vector<std::int32_t>& of_head : sorted) std::ranges::sort(of_head);
  EXPECT_EQ(sorted, entries_seen(everywhere, part));
}

// kvzip+, which alone reads the norms of rows, reads those of the whole model's repeat.
TEST_F(DeviceExecutorTest, OnlyRowsOfAWholeRepeatHaveNorms) {
  for (const bool is_late : {false, true}) {
    EvidenceNeeds needs;
    (is_late ? needs.late_repeat : needs.reconstruction_pass) = true;
    Session session = device_->open(for_device(full_options()));
    const auto look = [&](const LayerView& view, const ParallelFor&) {
      ASSERT_FALSE(view.passes.empty());
      for (const ReconstructionPass& pass : view.passes) EXPECT_EQ(pass.input_norm == nullptr, is_late);
    };
    prefill_observed(session, prompt_, {.needs = needs, .on_layer = look});
  }
}

class DeviceMethodTest : public testing::TestWithParam<std::string> {};

TEST_P(DeviceMethodTest, KeepsWhatTheProcessorKeeps) { expect_same_cut(tiny_model(small()), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Methods, DeviceMethodTest, testing::ValuesIn(session_methods()), method_test_name);
INSTANTIATE_TEST_SUITE_P(Question, DeviceMethodTest, testing::Values("auto-fast:bits=own,fit=none,question=last"),
                         method_test_name);

// A method, and the types of keys and values that it is used with (f16 where the method chooses them).
struct CodedMethod {
  std::string method, budget;
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
};

class DeviceCodesTest : public testing::TestWithParam<CodedMethod> {
 protected:
  static SessionOptions options() {
    SessionOptions options;
    options.eviction = EvictionOptions::parse(GetParam().method);
    if (options.eviction.evicts()) options.budget = Budget::parse(GetParam().budget);
    options.key_type = GetParam().key_type;
    options.value_type = GetParam().value_type;
    return options;
  }

  // Expects the logits of the device to be as near to the processor's as codes let them be: numbers that lie half-way
  // between two levels get either.
  static void expect_near(std::span<const std::vector<float>> expected, std::span<const std::vector<float>> own,
                          double most = 3e-3) {
    EXPECT_LT(mean_kl(expected, own), most);
  }
};

TEST_P(DeviceCodesTest, AnswersAsTheProcessorDoes) {
  TinyModelOptions tiny = small();
  tiny.n_layer = 2;
  tiny.has_all_biases = true;  // keys have origins
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const std::vector<Token> prompt = random_tokens(200, 300, 5), more = random_tokens(36, 300, 6);
  const std::shared_ptr<Engine> host = engine_on("cpu", model), device = engine_on(device_under_test(), model);
  Session expected = host->open(options()), session = device->open(options());
  expected.prefill(prompt);
  session.prefill(prompt);
  const MissingEntries missing = missing_entries(kept_positions(expected), kept_positions(session));
  EXPECT_LE(missing.fraction(), .05);
  EXPECT_NEAR(static_cast<double>(session.statistics().bytes_kept),
              static_cast<double>(expected.statistics().bytes_kept),
              .02 * static_cast<double>(expected.statistics().bytes_kept));
  // Pages fill up and become codes, and the second turn is cut again.
  const double most = missing.n == 0 ? 3e-3 : 2e-2;  // scores that differ in the last bits change their order
  expect_near(decode_all(expected, more), decode_all(session, more), most);
  expected.append(more);
  session.append(more);
  expect_near({{logits_of(expected)}}, {{logits_of(session)}}, most);
  Session fork = session.fork();
  EXPECT_EQ(decode_all(fork, std::span(more).first(3)), decode_all(session, std::span(more).first(3)));
  // A file goes from one to the other.
  const std::string path = testing::TempDir() + "device_codes";
  session.save(path);
  Session on_host = host->load_session(path), on_device = device->load_session(path);
  const auto logits = decode_all(session, std::span(more).last(8));
  EXPECT_EQ(decode_all(on_device, std::span(more).last(8)), logits);
  expect_near(decode_all(on_host, std::span(more).last(8)), logits);
}

// Entries in more bits are stored before the others, and later cuts name entries by position.
TEST(DeviceCuts, OfMixedBitsNameEntriesByPosition) {
  TinyModelOptions tiny = small();
  tiny.n_layer = 2;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  SessionOptions options;
  options.eviction = EvictionOptions::parse("snapkv:bits=8/8:.3,4/4");
  options.budget = Budget::parse("40%");
  Session expected = engine_on("cpu", model)->open(options);
  Session session = engine_on(device_under_test(), model)->open(options);
  for (const auto& [n_tokens, seed] : {std::pair{400, 5}, {40, 6}, {60, 7}}) {
    const std::vector<Token> turn = random_tokens(static_cast<std::size_t>(n_tokens), 300, static_cast<unsigned>(seed));
    expected.prefill(turn);
    session.prefill(turn);
    EXPECT_LE(missing_entries(kept_positions(expected), kept_positions(session)).fraction(), .05) << n_tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCodesTest,
                         testing::Values(CodedMethod{"auto", "10%bytes"},
                                         CodedMethod{"cake", "30%", EntryType::kQ8_0, EntryType::kQ4_0},
                                         CodedMethod{"expected-attention", "30%", EntryType::kF16, EntryType::kR4},
                                         CodedMethod{"full", "", EntryType::kR4, EntryType::kR3}),
                         [](const auto& test) {
                           return method_test_name({test.param.method, 0}) + "_" +
                                  std::string(entry_type_name(test.param.key_type)) + "_" +
                                  std::string(entry_type_name(test.param.value_type));
                         });

}  // namespace
}  // namespace winnow::test
