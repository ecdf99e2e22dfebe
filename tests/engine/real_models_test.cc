// What coded keys and `auto` cost models that people run: how far predictions move from those of the full cache in f16.
// The default model's test always runs. Those of the larger ones of scripts/models.txt take a minute or two, and run
// where WINNOW_REQUIRE_MODELS is set (make test-models), which also fails them where there is no model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/engine_test_support.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

constexpr const char* kTextFile = WINNOW_TEST_DATA "/hound-of-the-baskervilles.txt";
constexpr std::size_t kContextTokens = 1024;   // are read, and cut where a method cuts
constexpr std::size_t kFollowingTokens = 512;  // come behind them; each one's predictions are compared

struct Bounds {
  const char* model;  // its name in scripts/models.txt
  bool is_default;
  double r4_keys;         // mean KL in nats of a full cache with keys in r4
  double auto_5_percent;  // and of auto at 5 % of the bytes
};
constexpr Bounds kBounds[] = {
    {.model = "SmolLM2-135M", .is_default = true, .r4_keys = 0.01, .auto_5_percent = 0.02},
    {.model = "Qwen2.5-Coder-1.5B-Instruct", .is_default = false, .r4_keys = 0.01, .auto_5_percent = 0.2},
    {.model = "Gemma-3-270M", .is_default = false, .r4_keys = 0.01, .auto_5_percent = 0.2},
};

void PrintTo(const Bounds& bounds, std::ostream* out) { *out << bounds.model; }

// The second column of the model's row.
std::string file_of(const std::string& model) {
  std::ifstream table(WINNOW_MODEL_TABLE);
  for (std::string line; std::getline(table, line);) {
    std::istringstream columns(line);
    std::string name, file;
    if (columns >> name >> file && name == model) return file;
  }
  ADD_FAILURE() << model << " has no row in " << WINNOW_MODEL_TABLE;
  return "";
}

class RealModelTest : public testing::TestWithParam<Bounds> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("WINNOW_TEST_MODELS");
    path_ = std::string(folder != nullptr ? folder : WINNOW_MODELS) + "/" + file_of(GetParam().model);
    const bool is_there = access(path_.c_str(), R_OK) == 0;
    const bool is_required = std::getenv("WINNOW_REQUIRE_MODELS") != nullptr;
    if (is_required && !is_there) {
      FAIL() << "there is no " << path_ << ", and WINNOW_REQUIRE_MODELS is set: make model MODEL=" << GetParam().model;
    } else if (!is_there) {
      GTEST_SKIP() << "there is no " << path_ << ": make model MODEL=" << GetParam().model;
    } else if (!is_required && !GetParam().is_default) {
      GTEST_SKIP() << "WINNOW_REQUIRE_MODELS is not set: make test-models runs this over " << GetParam().model;
    }
  }

  std::string path_;
};

TEST_P(RealModelTest, CodedKeysAndAutoStayNearTheFullCache) {
  const auto engine = Engine::create(Model::load(path_));
  std::vector<Token> tokens = engine->model()->tokenize(read_bytes(kTextFile), true, false);
  ASSERT_GE(tokens.size(), kContextTokens + kFollowingTokens);
  const std::span<const Token> context = std::span(tokens).first(kContextTokens);
  const std::span<const Token> following = std::span(tokens).subspan(kContextTokens, kFollowingTokens);
  std::vector<std::vector<float>> full;  // [kFollowingTokens][n_vocab], logarithms of probabilities
  // The mean KL over the tokens that follow; that of the first run, with the full cache in f16, is the reference.
  const auto follow = [&](const char* label, const SessionOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    Session session = engine->open(options);
    session.prefill(context);
    const bool is_reference = full.empty();
    std::vector<float> row(session.logits().size());
    double sum = 0;
    std::size_t n = 0;
    PrefillOptions callbacks;
    callbacks.on_logits = [&](std::int32_t, std::span<const float> logits) {
      log_softmax(logits, row);
      if (is_reference) {
        full.push_back(row);
      } else {
        sum += winnow::kl_divergence(full[n], 0, row, 0);
      }
      ++n;
    };
    session.append(following, callbacks);
    EXPECT_EQ(n, kFollowingTokens);
    const double kl = sum / static_cast<double>(kFollowingTokens);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s, %-22s mean KL %.3g nats, %.1f s\n", GetParam().model, label, kl, seconds.count());
    std::fflush(stdout);
    return kl;
  };
  SessionOptions f16;
  follow("full cache in f16", f16);
  SessionOptions r4_keys;
  r4_keys.key_type = EntryType::kR4;
  EXPECT_LE(follow("full cache, r4 keys", r4_keys), GetParam().r4_keys);
  SessionOptions cut;
  cut.eviction = EvictionOptions::parse("auto");
  cut.budget = Budget::parse("5%bytes");
  EXPECT_LE(follow("auto, 5 % of the bytes", cut), GetParam().auto_5_percent);
}

std::string test_name(const testing::TestParamInfo<Bounds>& bounds) {
  std::string name;
  for (const char c : std::string(bounds.param.model)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelTest, testing::ValuesIn(kBounds), test_name);

}  // namespace
}  // namespace winnow::test
