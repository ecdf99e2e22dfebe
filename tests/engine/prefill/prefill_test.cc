// Prefill in slices, prefill of several sessions at once, and estimates of the memory that a request takes.
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>

#include "engine/engine_test_support.h"
#include "kernels/products/quantised_product.h"
#include "model/tiny_architectures.h"
#include "winnow/observe.h"

namespace winnow::test {
namespace {

std::vector<std::string> shared_methods() {
  return {"full",          "snapkv:window=8", "snapkv:window=8,pool=none",   "critical-snapkv:window=8",
          "lava:window=8", "h2o:window=8",    "expected-attention:window=8", "kvzip:window=8",
          "tova:window=4"};
}

SessionOptions options_of(const std::string& method, const std::string& budget) {
  return method == "full" ? full_options() : evicting_options(method, budget);
}

TEST(Prefill, TakesSessionsOfItsEngineAlone) {
  const auto engine = small_engine(), other = small_engine();
  Session session = engine->open(full_options());
  const std::vector<Token> tokens = random_tokens(20, 300, 1);
  Session* of_prefill[] = {&session};
  expect_error(ErrorCode::kInvalidArgument, [&] { other->start_prefill(of_prefill, tokens); });
  expect_error(ErrorCode::kInvalidArgument, [&] { other->start_append(session, tokens); });
  EXPECT_EQ(session.n_tokens(), 0);
}

TEST(SharedPrefill, EverySessionIsAsIfAlone) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 32});
  const std::vector<Token> prompt = random_tokens(150, 300, 1);
  const std::vector<Token> later = random_tokens(40, 300, 2);
  std::vector<Session> sessions;
  std::vector<SessionOptions> options;
  for (const std::string& method : shared_methods()) {
    for (const char* budget : {"30", "60%"}) options.push_back(options_of(method, budget));
  }
  for (const SessionOptions& o : options) sessions.push_back(engine->open(o));
  std::vector<Session*> pointers;
  for (Session& session : sessions) pointers.push_back(&session);
  engine->prefill(pointers, prompt);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    Session alone = engine->open(options[i]);
    alone.prefill(prompt);
    const std::string name = options[i].eviction.text();
    EXPECT_EQ(kept_positions(sessions[i]), kept_positions(alone)) << name;
    EXPECT_EQ(logits_of(sessions[i]), logits_of(alone)) << name;
    if (name.starts_with("kvzip")) continue;  // cannot be cut again
    alone.prefill(later);                     // the window's queries and the moments were passed on
    sessions[i].prefill(later);
    EXPECT_EQ(kept_positions(sessions[i]), kept_positions(alone)) << name;
    EXPECT_EQ(logits_of(sessions[i]), logits_of(alone)) << name;
  }
}

// The last layer computes the output of the rows that somebody reads.
TEST(Prefill, IsTheSameWhetherAllRowsAreReadOrTheLast) {
  for (const char* architecture : {"llama", "gemma2", "qwen3moe", "gpt-oss", "deepseek2", "gemma4", "granitehybrid"}) {
    TinyModelOptions tiny = tiny_options(architecture);
    const auto engine = Engine::create(tiny_model(tiny), {.n_threads = 2, .n_batch = 32});
    const std::vector<Token> prompt = random_tokens(150, tiny.n_vocab, 1), more = random_tokens(70, tiny.n_vocab, 2);
    const bool is_recurrent = std::string_view(architecture) == "granitehybrid";
    for (const char* method : {"full", "h2o:window=8", "kvzip:window=8"}) {
      SCOPED_TRACE(std::string(architecture) + " " + method);
      if (is_recurrent && std::string_view(method) != "full") continue;
      const SessionOptions options = options_of(method, "60%");
      Session whole = engine->open(options), last = engine->open(options);
      std::int32_t n_rows = 0;
      PrefillOptions callbacks;
      callbacks.on_logits = [&](std::int32_t, std::span<const float>) { ++n_rows; };
      whole.prefill(prompt, callbacks);
      last.prefill(prompt);
      EXPECT_EQ(n_rows, 150);
      ASSERT_EQ(logits_of(last), logits_of(whole));
      ASSERT_EQ(kept_positions(last), kept_positions(whole));
      whole.append(more, callbacks);
      last.append(more);
      ASSERT_EQ(logits_of(last), logits_of(whole));
    }
  }
}

TEST(SharedPrefill, RefusesSessionsThatCannotShare) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  const std::vector<Token> prompt = random_tokens(20, 300, 1);
  Session a = engine->open(full_options());
  Session b = engine->open(full_options());
  SessionOptions other_type = full_options();
  other_type.key_type = EntryType::kBF16;
  Session c = engine->open(other_type);
  Session* same[] = {&a, &a};
  Session* types[] = {&a, &c};
  Session* pair[] = {&a, &b};
  Session* absent[] = {&a, nullptr};
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->prefill(same, prompt); });
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->prefill(absent, prompt); });
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->decode(absent, std::vector<Token>{1, 2}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->prefill(types, prompt); });
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->prefill({}, prompt); });
  b.prefill(prompt);
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->prefill(pair, prompt); });
  EXPECT_EQ(a.n_tokens(), 0);
  EXPECT_EQ(b.n_tokens(), 20);
}

// Two prefills and a decoding session take turns; each ends as it would alone.
TEST(SlicedPrefill, TakesTurnsWithOthers) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 16});
  const std::vector<Token> first = random_tokens(130, 300, 1), second = random_tokens(90, 300, 2);
  const std::vector<Token> turn = random_tokens(50, 300, 3);
  const SessionOptions options = evicting_options("lava:window=8", "24");
  Session a = engine->open(options), b = engine->open(options), c = engine->open(full_options());
  c.prefill(second);
  Session d = c.fork();
  Session* pa[] = {&a};
  Session* pb[] = {&b};
  Prefill one = engine->start_prefill(pa, first), two = engine->start_prefill(pb, second);
  Prefill three = engine->start_append(d, turn);
  EXPECT_EQ(one.work_total(), 130 * 3);
  bool more = true;
  std::vector<float> decoded;
  for (int i = 0; more; ++i) {
    more = one.step();
    more |= two.step();
    more |= three.step();
    c.decode(static_cast<Token>(i % 7));
    if (!one.done()) expect_error(ErrorCode::kInvalidArgument, [&] { a.decode(1); });
  }
  EXPECT_TRUE(one.done() && two.done() && three.done());
  EXPECT_FALSE(one.step());
  Session alone = engine->open(options);
  alone.prefill(first);
  EXPECT_EQ(logits_of(a), logits_of(alone));
  EXPECT_EQ(kept_positions(a), kept_positions(alone));
  alone.clear();
  alone.prefill(second);
  EXPECT_EQ(logits_of(b), logits_of(alone));
  Session appended = engine->open(full_options());
  appended.prefill(second);
  appended.append(turn);
  EXPECT_EQ(logits_of(d), logits_of(appended));
}

TEST(SlicedPrefill, GivenUpLeavesNothingBehind) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1, .n_batch = 16});
  Session session = engine->open(evicting_options("cake:window=8", "24"));
  Session* one[] = {&session};
  for (const int steps : {0, 1, 8, 20}) {
    Prefill prefill = engine->start_prefill(one, random_tokens(130, 300, 1));
    for (int i = 0; i < steps; ++i) prefill.step();
  }
  EXPECT_EQ(session.n_tokens(), 0);
  EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
  session.prefill(random_tokens(130, 300, 1));
  EXPECT_EQ(session.statistics().entries_kept, 24 * 6);
}

// Products in each number format, for prompts around the lengths from which on kAuto converts the weights, with a
// weight type that winnow multiplies itself and one that ggml multiplies.
class PrefillWeightsTest : public testing::TestWithParam<ggml_type> {};

TEST_P(PrefillWeightsTest, AreNearTheExactProducts) {
  const bool is_ours = GetParam() == GGML_TYPE_Q8_0;
  const auto model = tiny_model({.n_embd = 128, .n_ff = 128, .weight_type = GetParam()});
  const std::int32_t converted = is_ours ? kMinConvertedInt8Tokens : kMinConvertedTokens;
  for (const int n_prompt : {converted, converted - 1, 90, 7}) {
    const std::vector<Token> prompt = random_tokens(n_prompt, 300, 1);
    const auto logits_with = [&](PrefillWeights weights) {
      const auto engine = Engine::create(model, {.n_threads = 2, .n_batch = 64, .prefill_weights = weights});
      Session session = engine->open(full_options());
      session.prefill(prompt);
      return logits_of(session);
    };
    const std::vector<float> exact = logits_with(PrefillWeights::kF32);
    const std::vector<float> as_is = logits_with(PrefillWeights::kAsIs);
    EXPECT_LT(max_difference(as_is, exact), 0.3);
    EXPECT_NE(as_is, exact);
    const std::vector<float> automatic = logits_with(PrefillWeights::kAuto);
    const bool has_int8 = kernels::has_quantised_products();
    if (has_int8) {
      EXPECT_EQ(logits_with(PrefillWeights::kInt8) == as_is, is_ours);
    } else {
      expect_error(ErrorCode::kUnsupported, [&] { logits_with(PrefillWeights::kInt8); });
    }
    const bool converts =
        has_int8 && is_ours ? multiplies_bf16_by_tiles() && n_prompt >= converted : n_prompt >= kMinConvertedTokens;
    EXPECT_EQ(automatic == as_is, !converts) << n_prompt;
    if (!multiplies_bf16()) {
      expect_error(ErrorCode::kUnsupported, [&] { logits_with(PrefillWeights::kBf16); });
      EXPECT_EQ(automatic == exact, converts);
      continue;
    }
    const std::vector<float> bf16 = logits_with(PrefillWeights::kBf16);
    EXPECT_LT(max_difference(bf16, exact), 0.3);
    EXPECT_NE(bf16, exact);
    EXPECT_EQ(automatic == bf16, converts);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PrefillWeightsTest, testing::Values(GGML_TYPE_Q8_0, GGML_TYPE_F16),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

TEST(PrefillWeightsNames, OthersAreRefused) {
  expect_error(ErrorCode::kInvalidArgument, [] { parse_prefill_weights("fp8 please"); });
  EXPECT_EQ(parse_prefill_weights("int8"), PrefillWeights::kInt8);
}

// The pass that repeats the prompt counts as time of the cut. Its batches follow the prompt's in every layer.
TEST(EvictionTime, CountsThePassOverThePrompt) {
  constexpr int kBatch = 32, kPrompt = 320;
  const auto model = tiny_model({.n_embd = 128, .n_ff = 512});
  const auto engine = Engine::create(model, {.n_threads = 1, .n_batch = kBatch});
  Session session = engine->open(evicting_options("kvzip:window=8", "50%"));
  Session* self = &session;
  Prefill prefill = engine->start_prefill(std::span(&self, 1), random_tokens(kPrompt, 300, 1), {});
  const std::int64_t n_layer = model->info().n_layer();
  double of_pass = 0;
  std::int64_t before = 0;
  bool more = true;
  while (more) {
    const auto start = std::chrono::steady_clock::now();
    more = prefill.step();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const std::int64_t of_layer = prefill.work_total() / n_layer;
    const std::int64_t at = prefill.work_done() % of_layer;  // 0 after a layer's last batch, with which it is cut
    if (at > kPrompt && prefill.work_done() > before) of_pass += elapsed.count();
    before = prefill.work_done();
  }
  EXPECT_GT(of_pass, 0);
  EXPECT_GT(session.statistics().evict_s, of_pass / 2);
  EXPECT_LT(session.statistics().evict_s, session.statistics().prefill_s);
}

TEST(ObservedPrefill, ShowsEveryLayerWholeAndWithQueries) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 32});
  Session session = engine->open(evicting_options("snapkv:window=8", "24"));
  int n_layers = 0;
  prefill_observed(session, random_tokens(100, 300, 1),
                   {.needs = {.window_rows = 3, .output_projection = true},
                    .on_layer = [&](const LayerView& view, const ParallelFor&) {
                      EXPECT_EQ(view.layer, n_layers++);
                      EXPECT_EQ(view.n_window_rows, 3);
                      EXPECT_NE(view.w_o, nullptr);
                      for (const kernels::HeadEntries& head : view.heads) EXPECT_EQ(head.n_entries, 100);
                    }});
  EXPECT_EQ(n_layers, 3);
  EXPECT_EQ(session.statistics().entries_kept, 24 * 6);

  Session full = open_observed(*engine, full_options(), {.window_rows = 5});
  full.prefill(random_tokens(40, 300, 1));
  decode_all(full, random_tokens(5, 300, 2));
  n_layers = 0;
  observe_stored(full, {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor&) {
                          EXPECT_EQ(view.layer, n_layers++);
                          EXPECT_EQ(view.n_window_rows, 5);
                          EXPECT_EQ(view.n_tokens, 45);
                        }});
  EXPECT_EQ(n_layers, 3);
}

class EstimateTest : public testing::TestWithParam<std::string> {};

// The estimate is never less than the peak, and at most two pages per head above it.
TEST_P(EstimateTest, BoundsWhatIsTaken) {
  for (const int n_prompt : {40, 100, 333}) {
    for (const char* budget : {"24", "50%", "4096"}) {
      for (const int chunk : {0, 64}) {
        if (chunk > 0 && (GetParam() == "kvzip:window=8" || GetParam() == "full")) continue;
        for (const auto cut :
             {SessionOptions::DecodeCut::kKeep, SessionOptions::DecodeCut::kTotal, SessionOptions::DecodeCut::kOwn}) {
          if (cut != SessionOptions::DecodeCut::kKeep && (GetParam() == "kvzip:window=8" || GetParam() == "full")) {
            continue;
          }
          const auto engine = Engine::create(tiny_model(), {.n_threads = 1, .n_batch = 64});
          SessionOptions options = options_of(GetParam(), budget);
          options.prefill_chunk = chunk;
          options.decode_cut = cut;
          options.cut_every = 5;
          const MemoryEstimate estimate = engine->estimate(options, n_prompt, 12);
          Session session = engine->open(options);
          session.prefill(random_tokens(n_prompt, 300, 1));
          decode_all(session, random_tokens(12, 300, 2));
          const std::size_t peak = engine->memory().kv_bytes_peak;
          EXPECT_LE(peak, estimate.kv_bytes_peak) << n_prompt << " " << budget << " " << chunk;
          const std::size_t page = CacheShape(session.impl().cache.shape()).page_bytes(0);
          EXPECT_GE(peak + 2 * 6 * page, estimate.kv_bytes_peak) << n_prompt << " " << budget << " " << chunk;
          EXPECT_LE(session.statistics().hidden_bytes, estimate.hidden_bytes + 4096);
        }
      }
    }
  }
}

TEST(Estimate, ChangesNothing) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  {
    Session session = engine->open(full_options());
    session.prefill(random_tokens(100, 300, 1));
  }
  const MemoryStatistics before = engine->memory();
  ASSERT_EQ(before.kv_bytes_in_use, 0U);
  ASSERT_GT(before.kv_bytes_peak, 0U);
  for (const char* method : {"snapkv:window=8", "expected-attention", "kvzip:window=8"}) {
    engine->estimate(evicting_options(method, "50%"), 100, 20);
    EXPECT_EQ(engine->memory().kv_bytes_peak, before.kv_bytes_peak) << method;
  }
  // An estimate neither waits for a computation nor takes a session's memory, here 600,000 rows of saved queries.
  const std::lock_guard lock(engine->impl().mutex);
  const std::shared_ptr<const Engine> asked = engine;
  SessionOptions options = evicting_options("snapkv:window=600000", "2000000");
  options.n_ctx = 2000000;
  EXPECT_GT(asked->estimate(options, 100, 20).kv_bytes_peak, 0U);
}

INSTANTIATE_TEST_SUITE_P(Methods, EstimateTest,
                         testing::Values("full", "snapkv:window=8", "cake:window=8", "lava:window=8", "kvzip:window=8"),
                         [](const auto& test) { return test.param.substr(0, test.param.find(':')); });

TEST(Callbacks, CannotUseTheEngineThatCallsThem) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  const std::vector<Token> prompt = random_tokens(20, 300, 1);
  Session own = engine->open(full_options()), other = engine->open(full_options());
  other.prefill(prompt);
  auto dropped = std::make_unique<Session>(other.fork());
  int n_calls = 0;
  PrefillOptions options;
  options.on_progress = [&](std::int64_t, std::int64_t) {
    ++n_calls;
    for (const std::function<void()>& call : std::vector<std::function<void()>>{
             [&] { own.decode(1); }, [&] { other.decode(1); }, [&] { other.fork(); }, [&] { other.clear(); },
             [&] { other.append(prompt); }, [&] { other.truncate(5); }, [&] { engine->free_memory(); }}) {
      expect_error(ErrorCode::kInvalidArgument, call);
    }
    dropped.reset();  // an end is no call
    return true;
  };
  own.prefill(prompt, options);
  EXPECT_GT(n_calls, 0);
  EXPECT_EQ(other.n_tokens(), 20);
  Session expected = engine->open(full_options());
  expected.prefill(prompt);
  EXPECT_TRUE(std::ranges::equal(own.logits(), expected.logits()));
}

}  // namespace
}  // namespace winnow::test
