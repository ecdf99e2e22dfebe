// The default model on natural text: its distance from libllama, and its memory. Skipped without the model.
#include <gtest/gtest.h>
#include <llama.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/engine_test_support.h"
#include "kernels/products/quantised_product.h"
#include "text/tokenizer.h"
#include "winnow/embedding.h"
#include "winnow/log_softmax.h"

extern char** environ;

namespace winnow::test {
namespace {

constexpr const char* kTextFile = WINNOW_TEST_DATA "/hound-of-the-baskervilles.txt";

std::string model_path() {
  const char* path = std::getenv("WINNOW_TEST_MODEL");
  return path != nullptr && access(path, R_OK) == 0 ? path : "";
}

std::vector<Token> text_tokens(const Model& model, std::size_t n) {
  std::vector<Token> tokens = model.tokenize(read_bytes(kTextFile), true, false);
  EXPECT_GE(tokens.size(), n);
  tokens.resize(n);
  return tokens;
}

class DefaultModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (model_path().empty()) GTEST_SKIP() << "WINNOW_TEST_MODEL names no file: run scripts/setup.sh";
  }
};

// The distance of logits [n][n_vocab] from a reference.
struct Distance {
  double mean_kl;  // nats
  double top1;     // share of the positions with the same likeliest token
};

Distance distance_between(const std::vector<std::vector<float>>& reference,
                          const std::vector<std::vector<float>>& logits) {
  EXPECT_EQ(reference.size(), logits.size());
  Distance distance{};
  const auto n = static_cast<double>(reference.size());
  for (std::size_t i = 0; i < reference.size(); ++i) {
    distance.mean_kl += kl_divergence(reference[i], logits[i]) / n;
    distance.top1 += (argmax(reference[i]) == argmax(logits[i])) / n;
  }
  return distance;
}

void print(const std::string& name, const Distance& distance) {
  std::printf("%-28s mean KL %.3g nats, top-1 equal at %.2f %%\n", name.c_str(), distance.mean_kl, 100 * distance.top1);
}

// Returns the logits [n][n_vocab] of every token of a prompt.
std::vector<std::vector<float>> prompt_logits(Engine& engine, const SessionOptions& options,
                                              std::span<const Token> tokens) {
  Session session = engine.open(options);
  std::vector<std::vector<float>> logits;
  PrefillOptions callbacks;
  callbacks.on_logits = [&](std::int32_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  session.prefill(tokens, callbacks);
  return logits;
}

// Long texts are split before special tokens, while libllama takes them whole.
TEST_F(DefaultModelTest, SpecialTokensInLongTextsAreThoseOfLibllama) {
  const Tokenizer tokenizer(model_path());
  const std::string novel = read_bytes(kTextFile);
  std::string text;
  for (std::size_t at = 0; text.size() < 100'000; at += 700) {
    const char* const specials[] = {"<|im_start|>user\n", "<|im_end|>\n", " <|im_end|> ", "<|endoftext|><|im_start|>"};
    text += novel.substr(at % 20'000, at % 11 * 60) + specials[at / 700 % 4];
  }
  text = text.substr(0, text.rfind('<'));
  for (const bool parse_special : {true, false}) {
    std::vector<Token> expected(text.size());
    const std::int32_t n =
        llama_tokenize(tokenizer.vocab(), text.data(), static_cast<std::int32_t>(text.size()), expected.data(),
                       static_cast<std::int32_t>(expected.size()), true, parse_special);
    ASSERT_GT(n, 1000);
    expected.resize(static_cast<std::size_t>(n));
    EXPECT_EQ(tokenizer.tokenize(text, true, parse_special), expected);
  }
  std::string many;
  for (int i = 0; i < 60'000; ++i) many += "<|im_start|>";
  EXPECT_EQ(tokenizer.tokenize(many, false, true).size(),
            60'000U);  // unsplit: 12 s, and four times as long for twice as many
}

// The reference is the exact result for the file's weights. libllama itself is some 3e-3 nats from it with these
// weights, because it rounds activations to 8 bits; two runs of it that batch differently are as far from each other.
TEST_F(DefaultModelTest, EqualsLibllamaOnNaturalText) {
  constexpr std::size_t kTokens = 320;
  const auto model = Model::load(model_path());
  const std::vector<Token> tokens = text_tokens(*model, kTokens);
  const LibllamaOracle oracle(model_path(), OracleWeights::kF32);
  const auto exact = oracle.logits(tokens);
  const Distance of_libllama = distance_between(exact, libllama_logits(model_path(), tokens));
  print("libllama", of_libllama);
  const auto engine = Engine::create(model, {.prefill_weights = PrefillWeights::kFloat});
  // A prompt's rows see each other uncoded, whatever the codes that are made of them afterwards.
  const std::pair<EntryType, double> most_kl[] = {{EntryType::kF32, std::min(1e-3, of_libllama.mean_kl)},
                                                  {EntryType::kF16, std::min(1e-3, of_libllama.mean_kl)},
                                                  {EntryType::kBF16, 2e-3},
                                                  {EntryType::kQ8_0, std::min(1e-3, of_libllama.mean_kl)},
                                                  {EntryType::kQ4_0, std::min(1e-3, of_libllama.mean_kl)}};
  for (const auto& [type, limit] : most_kl) {
    SessionOptions options;
    options.key_type = type;
    options.value_type = type;
    const Distance distance = distance_between(exact, prompt_logits(*engine, options, tokens));
    print("winnow, KV " + std::string(entry_type_name(type)), distance);
    EXPECT_LE(distance.mean_kl, limit);
    if (type == EntryType::kF32 || type == EntryType::kF16) {
      EXPECT_GE(distance.top1, of_libllama.top1);
    }
  }
  const std::span<const Token> text = std::span(tokens).first(128);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kCls, Pooling::kLast}) {
    std::vector<float> embedding = oracle.embedding(text, pooling);
    normalise(embedding);
    const std::vector<float> ours = embed(*engine, text, {.pooling = pooling});
    const double cosine = std::inner_product(ours.begin(), ours.end(), embedding.begin(), 0.0);
    std::printf("embedding, pooling %d: cosine %.7f\n", static_cast<int>(pooling), cosine);
    EXPECT_GT(cosine, 0.9999);
  }
  if (!kernels::has_quantised_products()) return;
  const auto int8 = Engine::create(model, {.prefill_weights = PrefillWeights::kInt8});
  const Distance distance = distance_between(exact, prompt_logits(*int8, full_options(), tokens));
  print("winnow, 8-bit products", distance);
  EXPECT_LE(distance.mean_kl, 1.1 * of_libllama.mean_kl) << "farther than two runs that round alike may be";
}

// The way in which a prefix was read must not change the answer: whether it was kept, restored, forked or truncated,
// and however long it is, the rest of the prompt gives the same predictions.
TEST_F(DefaultModelTest, WhatIsReadBehindAKeptPrefixIsWhatTheWholePromptGives) {
  constexpr std::size_t kTokens = 400;
  const auto engine = Engine::create(Model::load(model_path()));
  const std::vector<Token> tokens = text_tokens(*engine->model(), kTokens + 40);
  const std::span<const Token> prompt = std::span(tokens).first(kTokens);
  SessionOptions in_f16;  // f32 entries would be exact on every path
  in_f16.key_type = in_f16.value_type = EntryType::kF16;
  const TemporaryDirectory directory;
  const std::string path = directory.file("session");
  const auto expect_near = [](std::span<const float> expected, const Session& session, const std::string& what) {
    std::vector<float> a(expected.size());
    std::vector<float> b(expected.size());
    log_softmax(expected, a);
    log_softmax(session.logits(), b);
    double greatest = 0;  // over tokens that are likely enough to be sampled
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] > std::log(1e-3F)) greatest = std::max(greatest, std::abs(static_cast<double>(a[i] - b[i])));
    }
    EXPECT_LE(greatest, 0.01) << what;
  };
  Session whole = engine->open(in_f16);
  whole.prefill(prompt);
  const std::vector<float> expected = logits_of(whole);
  for (const std::size_t n_read_again : {1U, 7U, 33U}) {
    const std::string rest = std::to_string(n_read_again) + " tokens read behind what was ";
    const std::span<const Token> last = prompt.last(n_read_again);
    Session kept = engine->open(in_f16);
    kept.prefill(prompt.first(kTokens - n_read_again));
    kept.save(path);
    Session forked = kept.fork();
    Session restored = engine->load_session(path);
    Session truncated = engine->open(in_f16);
    truncated.prefill(tokens);
    truncated.truncate(static_cast<std::int32_t>(kTokens - n_read_again));
    for (const auto& [session, name] :
         {std::pair{&kept, "kept"}, {&forked, "forked"}, {&restored, "restored"}, {&truncated, "cut back to"}}) {
      session->append(last);
      expect_near(expected, *session, rest + name);
    }
  }
  // A compacted context holds codes of its tokens whatever came after them.
  SessionOptions options;
  options.eviction = EvictionOptions::parse("auto");
  options.budget = Budget::parse("10%bytes");
  Session compacted = engine->open(options);
  compacted.prefill(prompt);
  compacted.save(path);
  Session forked = compacted.fork();
  Session restored = engine->load_session(path);
  const std::span<const Token> question = std::span(tokens).last(40);
  compacted.append(question);
  forked.append(question);
  restored.append(question);
  expect_near(compacted.logits(), forked, "a fork of a compacted context");
  expect_near(compacted.logits(), restored, "a restored compacted context");
}

// Long caches are split into slices for the threads. Sums must not depend on the other sequences of the step.
TEST_F(DefaultModelTest, ABatchGivesTheBitsOfEachAlone) {
  const auto engine = Engine::create(Model::load(model_path()), {.n_threads = 2});
  const std::vector<Token> tokens = text_tokens(*engine->model(), 1500);
  std::vector<Session> alone;
  std::vector<Session> together;
  std::vector<Session*> step;
  for (const auto& [method, budget, n] : {std::tuple{"snapkv", "100%", 700}, std::tuple{"tova", "100%", 45},
                                          std::tuple{"ada-snapkv", "20%", 1500}, std::tuple{"lava", "150", 900}}) {
    alone.push_back(engine->open(evicting_options(method, budget)));
    alone.back().prefill(std::span(tokens).first(static_cast<std::size_t>(n)));
    together.push_back(alone.back().fork());
  }
  for (Session& session : together) step.push_back(&session);
  for (int n = 0; n < 12; ++n) {
    const std::vector<Token> next(alone.size(), tokens[static_cast<std::size_t>(n)]);
    engine->decode(step, next);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      alone[i].decode(next[i]);
      ASSERT_EQ(max_difference(together[i].logits(), alone[i].logits()), 0) << "sequence " << i << ", step " << n;
    }
    if (n % 4 == 3) {  // a sequence leaves
      step.pop_back();
      alone.pop_back();
    }
  }
}

TEST_F(DefaultModelTest, PagesHoldTheBudgetOfALongPrompt) {
  const auto model = Model::load(model_path());
  const auto engine = Engine::create(model);
  SessionOptions options;
  options.eviction = EvictionOptions::parse("snapkv");
  options.budget = Budget::parse("256");
  const std::vector<Token> tokens = text_tokens(*model, 2048);
  Session session = engine->open(options);
  session.prefill(tokens);
  const CacheShape shape = session.impl().cache.shape();
  const auto n_heads = static_cast<std::size_t>(shape.n_heads());
  const SessionStatistics statistics = session.statistics();
  EXPECT_EQ(statistics.entries_kept, static_cast<std::int64_t>(256 * n_heads));
  EXPECT_EQ(statistics.bytes_in_pages, entries_in_pages(statistics) * shape.page_bytes(0));
  const std::size_t one_layer =
      tokens.size() * static_cast<std::size_t>(shape.layer(0).n_kv_head) * shape.entry_bytes(0);
  EXPECT_LE(statistics.bytes_peak, 256 * n_heads * shape.entry_bytes(0) + one_layer + n_heads * shape.page_bytes(0));
  EXPECT_EQ(engine->memory().kv_bytes_in_use, statistics.bytes_in_pages);
}

// Sets made-up tables that some presets need: importances and kept ratios that differ from head to head.
void add_tables(EvictionOptions& options, const ModelInfo& model) {
  const auto n_heads = static_cast<std::size_t>(model.n_cut_heads());
  auto importance = std::make_shared<HeadImportance>();
  auto profile = std::make_shared<UtilityProfile>();
  std::size_t head = 0;
  for (const LayerInfo& layer : model.layers) {
    profile->heads.push_back(layer.n_kv_head);
    std::vector<double>& weights = importance->weight.emplace_back();
    for (int h = 0; h < layer.n_kv_head; ++h) weights.push_back(static_cast<double>(head++ * 7 % 11));
  }
  profile->ratios = {0.1, 0.5};
  for (const double ratio : profile->ratios) {
    for (std::size_t i = 0; i < n_heads; ++i) profile->kept.push_back(ratio * (0.5 + static_cast<double>(i % 5) / 4));
  }
  options.importance = importance;
  options.utility_profile = profile;
}

TEST_F(DefaultModelTest, EveryPresetKeepsExactlyItsBudget) {
  constexpr int kTokens = 1100;  // not a multiple of a page, and more than the largest budget
  const auto engine = Engine::create(Model::load(model_path()));
  const ModelInfo& model = engine->model()->info();
  const std::vector<Token> tokens = text_tokens(*engine->model(), kTokens);
  const std::int64_t n_heads = model.n_cut_heads();
  // The sessions of one pass share its prefill; all of them at once would take gigabytes.
  constexpr std::size_t kPresetsPerPass = 7;
  const std::deque<MethodInfo>& methods = eviction_methods();
  for (std::size_t first = 0; first < methods.size(); first += kPresetsPerPass) {
    std::vector<Session> sessions;
    std::vector<std::int64_t> expected;
    for (std::size_t m = first; m < std::min(methods.size(), first + kPresetsPerPass); ++m) {
      if (!methods[m].options.evicts()) continue;
      for (const char* budget : {"5%", "10%", "20%", "50%", "64", "128", "1024"}) {
        SessionOptions options;
        options.eviction = methods[m].options;
        add_tables(options.eviction, model);
        options.budget = Budget::parse(budget);
        sessions.push_back(engine->open(options));
        expected.push_back(options.budget->unit == Budget::Unit::kFraction
                               ? std::llround(options.budget->amount * kTokens * static_cast<double>(n_heads))
                               : static_cast<std::int64_t>(options.budget->amount) * n_heads);
      }
    }
    std::vector<Session*> pointers;
    for (Session& session : sessions) pointers.push_back(&session);
    engine->prefill(pointers, tokens);
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const SessionStatistics statistics = sessions[i].statistics();
      const CacheShape& shape = sessions[i].impl().cache.shape();
      EXPECT_EQ(statistics.entries_kept, expected[i]) << sessions[i].options().eviction.text();
      if (shape.has_codes()) continue;  // pages of several kinds
      EXPECT_EQ(statistics.bytes_in_pages, entries_in_pages(statistics) * shape.page_bytes(0));
    }
  }
}

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    std::size_t kib = 0;
    if (key == "VmHWM:" && status >> kib) return kib * 1024;
    status.ignore(1 << 20, '\n');
  }
  return 0;
}

struct Peaks {
  std::size_t resident;
  std::size_t kv;
};

// Runs a prefill of 4,096 tokens in a new process (with f32 entries, to have more to measure) and returns its peaks.
Peaks peaks_of(const std::string& method) {
  const TemporaryDirectory directory;
  setenv("WINNOW_MEASURED_METHOD", method.c_str(), 1);
  setenv("WINNOW_MEASURED_OUTPUT", directory.file("peaks").c_str(), 1);
  std::string name = "default_model_test";
  std::string filter = "--gtest_filter=MeasuredProcess.DISABLED_Prefill";
  std::string disabled = "--gtest_also_run_disabled_tests";
  std::string quiet = "--gtest_brief=1";
  char* arguments[] = {name.data(), filter.data(), disabled.data(), quiet.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << method;
  Peaks peaks{};
  std::ifstream(directory.file("peaks")) >> peaks.resident >> peaks.kv;
  return peaks;
}

// A method that ranks by the whole prompt keeps what a question at its end asks for.
TEST_F(DefaultModelTest, AQuestionInSightIsAnswered) {
  const auto engine = Engine::create(Model::load(model_path()));
  const Model& model = *engine->model();
  const std::string answer =
      "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.";
  std::vector<Token> prompt = text_tokens(model, 1600);
  const std::vector<Token> fact = model.tokenize("\n" + answer + "\n", false, false),
                           question = model.tokenize(
                               "\n\nQuestion: What is the best thing to do in San Francisco?\nAnswer:", false, false),
                           answered = model.tokenize(" " + answer, false, false);
  prompt.insert(prompt.begin() + 500, fact.begin(), fact.end());
  prompt.insert(prompt.end(), question.begin(), question.end());
  const auto loss = [&](bool question_aware) {  // nats a token of the answer
    SessionOptions options;
    options.eviction = EvictionOptions::parse("auto-fast");
    options.budget = Budget::parse("5%bytes");
    options.question_aware = question_aware;
    Session session = engine->open(options);
    session.prefill(prompt);
    double sum = 0;
    for (const Token token : answered) {
      const std::span<const float> logits = session.logits();
      double all = 0;
      for (const float logit : logits)
        all += std::exp(static_cast<double>(logit - logits[static_cast<std::size_t>(token)]));
      sum += std::log(all);
      session.decode(token);
    }
    return sum / static_cast<double>(answered.size());
  };
  const double aware = loss(true), agnostic = loss(false);
  std::printf("the answer: %.3f nats a token with the question in sight, %.3f without\n", aware, agnostic);
  EXPECT_LT(aware, 0.7 * agnostic);
}

TEST(MeasuredProcess, DISABLED_Prefill) {
  const char* method = std::getenv("WINNOW_MEASURED_METHOD");
  const char* output = std::getenv("WINNOW_MEASURED_OUTPUT");
  if (method == nullptr || output == nullptr || model_path().empty()) GTEST_SKIP() << "run by ProcessMemory only";
  const auto engine = Engine::create(Model::load(model_path()));
  Session session = engine->open(std::string(method) == "full" ? full_options() : evicting_options(method, "256"));
  session.prefill(text_tokens(*engine->model(), 2048));
  std::ofstream(output) << peak_resident_bytes() << ' ' << engine->memory().kv_bytes_peak << '\n';
}

TEST_F(DefaultModelTest, ProcessMemoryFallsAsMuchAsTheStatisticsSay) {
  const Peaks full = peaks_of("full");
  const Peaks evicted = peaks_of("snapkv");
  ASSERT_GT(full.kv, evicted.kv);
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf("full: %.1f MiB resident, %.1f MiB KV; snapkv: %.1f and %.1f\n", mib(full.resident), mib(full.kv),
              mib(evicted.resident), mib(evicted.kv));
  const double saved_kv = mib(full.kv) - mib(evicted.kv);
  const double saved_resident = mib(full.resident) - mib(evicted.resident);
  EXPECT_NEAR(saved_resident / saved_kv, 1.0, 0.1);
}

}  // namespace
}  // namespace winnow::test
