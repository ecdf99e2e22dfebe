// The default model on a device, compared with the processor for every method that needs no file. The device is the
// test device (device/host_device.h), or that of WINNOW_TEST_DEVICE.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/engine_test_support.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

constexpr const char* kText =
    "The lighthouse keeper wrote in his log every evening: the wind, the ships that passed, and the colour of the sea. "
    "On the ninth of March he wrote that a grey ship had come in without a light, and that nobody was on its deck. The "
    "harbour master did not believe";

class DeviceDefaultModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* path = std::getenv("WINNOW_TEST_MODEL");
    if (path == nullptr) return;
    model_ = Model::load(path);
    EngineOptions options{.n_threads = 2};
    host_ = Engine::create(model_, options);
    options.device = device_under_test();
    device_ = Engine::create(model_, options);
  }
  static void TearDownTestSuite() {
    host_.reset();
    device_.reset();
    model_.reset();
  }
  void SetUp() override {
    if (!model_) GTEST_SKIP() << "WINNOW_TEST_MODEL names no model: make model";
  }

  static inline std::shared_ptr<const Model> model_;
  static inline std::shared_ptr<Engine> host_, device_;
};

// Returns a prompt's logits, [n_tokens][n_vocab].
std::vector<std::vector<float>> all_logits(Engine& engine, const std::vector<Token>& prompt) {
  std::vector<std::vector<float>> rows;
  Session session = engine.open({});
  session.prefill(prompt, {.on_logits = [&](std::int32_t, std::span<const float> row) {
                    rows.emplace_back(row.begin(), row.end());
                  }});
  return rows;
}

// Both round activations to 8 bits, in different ways: they are as far from each other as one is from float32.
TEST_F(DeviceDefaultModelTest, LogitsAreTheProcessors) {
  const std::vector<Token> prompt = model_->tokenize(kText, true, false);
  const auto exact =
      all_logits(*Engine::create(model_, {.n_threads = 2, .prefill_weights = PrefillWeights::kF32}), prompt);
  const auto expected = all_logits(*host_, prompt), own = all_logits(*device_, prompt);
  EXPECT_LT(mean_kl(expected, own), 2 * mean_kl(exact, expected));
  EXPECT_LT(mean_kl(exact, own), 1.5 * mean_kl(exact, expected));
}

// All methods read the prompt in one pass, which takes the test device seconds. device_executor_test.cc has passes of
// one method each, on small models.
TEST_F(DeviceDefaultModelTest, EveryMethodKeepsWhatItDoesOnTheProcessor) {
  const std::vector<Token> prompt = model_->tokenize(kText, true, false);
  const std::vector<std::string> methods = session_methods();
  const auto kept_on = [&](const std::shared_ptr<Engine>& engine) {
    std::vector<Session> sessions;
    for (const std::string& method : methods) {
      SessionOptions options = evicting_options(method, "60%");
      options.key_type = options.value_type = EntryType::kF16;
      options.eviction.fit = Fit::kNone;
      sessions.push_back(engine->open(options));
    }
    std::vector<Session*> pointers;
    for (Session& session : sessions) pointers.push_back(&session);
    engine->prefill(pointers, prompt);
    std::vector<HeadPositions> kept;
    for (const Session& session : sessions) kept.push_back(kept_positions(session));
    return kept;
  };
  const std::vector<HeadPositions> expected = kept_on(host_), actual = kept_on(device_);
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const MissingEntries missing = missing_entries(expected[m], actual[m]);
    // Rounded activations change the order of scores that are nearly equal.
    EXPECT_LE(missing.fraction(), .03) << methods[m] << ": " << missing.n << " of " << missing.n_expected;
    EXPECT_GT(missing.n_expected, 0U) << methods[m];
  }
}

// The default method as users get it: in few bits, with refitted values.
TEST_F(DeviceDefaultModelTest, AutoAnswersAsOnTheProcessor) {
  std::string words = kText;
  words += " him, for no ship had passed his pier that night. The keeper shut the log and lit the lamp.";
  const std::vector<Token> text = model_->tokenize(words, true, false);
  const std::span<const Token> prompt = std::span(text).first(48), answer = std::span(text).subspan(48, 16);
  SessionOptions options;
  options.eviction = EvictionOptions::parse("auto");
  options.budget = Budget::parse("20%bytes");
  Session full = host_->open({}), expected = host_->open(options), own = device_->open(options);
  for (Session* session : {&full, &expected, &own}) session->prefill(prompt);
  EXPECT_NEAR(static_cast<double>(own.statistics().bytes_kept), static_cast<double>(expected.statistics().bytes_kept),
              .01 * static_cast<double>(expected.statistics().bytes_kept));
  const auto logits = decode_all(full, answer), on_host = decode_all(expected, answer),
             on_device = decode_all(own, answer);
  EXPECT_LT(mean_kl(on_host, on_device), .5 * mean_kl(logits, on_host));
  EXPECT_LT(mean_kl(logits, on_device), 1.25 * mean_kl(logits, on_host));
}

}  // namespace
}  // namespace winnow::test
