// Models that people run: a comparison of their logits with libllama's, and the cost of coded keys and `auto` (how far
// predictions move from those of the full cache in f16). The default model's test always runs. Those of the larger ones
// of scripts/models.txt take a minute or two, and run if WINNOW_REQUIRE_MODELS is set (make test-models, .ci/run),
// which also makes a missing model a failure.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/engine_test_support.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

constexpr const char* kTextFile = WINNOW_TEST_DATA "/hound-of-the-baskervilles.txt";
constexpr std::size_t kContextTokens = 1024;   // tokens that are read, and cut by a method
constexpr std::size_t kFollowingTokens = 512;  // tokens after them, whose predictions are compared
// The number of tokens compared with libllama. The context before them is several windows long if a model has windows.
constexpr std::size_t kComparedTokens = 128;

struct Bounds {
  const char* model;  // its name in scripts/models.txt
  bool is_default;
  double r4_keys;             // mean KL in nats of a full cache with keys in r4
  double auto_5_percent;      // and of auto at 5 % of the bytes
  std::size_t exact_context;  // tokens before those that are compared with libllama in f32
};
constexpr Bounds kBounds[] = {
    {.model = "SmolLM2-135M", .is_default = true, .r4_keys = 0.01, .auto_5_percent = 0.02, .exact_context = 896},
    {.model = "Qwen2.5-Coder-0.5B-Instruct",
     .is_default = false,
     .r4_keys = 0.01,
     .auto_5_percent = 0.2,
     .exact_context = 128},
    {.model = "Qwen2.5-Coder-1.5B-Instruct",
     .is_default = false,
     .r4_keys = 0.01,
     .auto_5_percent = 0.2,
     .exact_context = 128},
    {.model = "Gemma-3-270M", .is_default = false, .r4_keys = 0.01, .auto_5_percent = 0.2, .exact_context = 1408},
};

void PrintTo(const Bounds& bounds, std::ostream* out) { *out << bounds.model; }

// Returns the second column of the model's row, which names its file.
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
  // Returns the mean KL over the following tokens. The first run, with the full cache in f16, is the reference.
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

// Returns the mean KL in nats of an engine's predictions from `expected`, over the tokens after the context.
double distance_from(const std::vector<std::vector<float>>& expected, const std::string& path, PrefillWeights weights,
                     std::span<const Token> tokens) {
  const auto engine = Engine::create(Model::load(path), {.prefill_weights = weights});
  SessionOptions options;
  options.key_type = options.value_type = EntryType::kF32;
  Session session = engine->open(options);
  const std::size_t n_context = tokens.size() - expected.size();
  session.prefill(tokens.first(n_context));
  double sum = 0;
  std::size_t n = 0;
  PrefillOptions callbacks;
  callbacks.on_logits = [&](std::int32_t, std::span<const float> logits) {
    sum += kl_divergence(expected.at(n++), logits);
  };
  session.append(tokens.subspan(n_context), callbacks);
  EXPECT_EQ(n, expected.size());
  return sum / static_cast<double>(n);
}

TEST_P(RealModelTest, LogitsAreThoseOfLibllama) {
  if (std::getenv("WINNOW_REQUIRE_MODELS") == nullptr) {
    GTEST_SKIP() << "WINNOW_REQUIRE_MODELS is not set: DefaultModelTest compares the default model's first tokens";
  }
  constexpr std::uintmax_t kLargeFile = std::uintmax_t{400} << 20;
  if (std::filesystem::file_size(path_) > kLargeFile && std::getenv("WINNOW_TEST_LARGE_COPIES") == nullptr) {
    GTEST_SKIP() << "its copy in f32 takes gigabytes of the temporary folder: set WINNOW_TEST_LARGE_COPIES for it";
  }
  const std::size_t n_context = GetParam().exact_context;
  std::vector<Token> tokens = Model::load(path_)->tokenize(read_bytes(kTextFile), true, false);
  ASSERT_GE(tokens.size(), n_context + kComparedTokens);
  tokens.resize(n_context + kComparedTokens);
  const TemporaryDirectory directory;
  const std::string exact_path = directory.file("f32.gguf");
  write_f32_copy(path_, exact_path);
  const auto exact = LibllamaOracle(exact_path).logits(tokens, n_context);
  const double ours = distance_from(exact, exact_path, PrefillWeights::kAsIs, tokens);
  std::printf("%s, all in f32, %zu tokens: mean KL %.3g nats\n", GetParam().model, tokens.size(), ours);
  EXPECT_LE(ours, 1e-5);
  // With the file's own weights, both engines round activations to 8 bits.
  const auto peer_logits = LibllamaOracle(path_).logits(tokens, n_context);
  double peer = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) peer += kl_divergence(exact[i], peer_logits[i]);
  peer /= static_cast<double>(exact.size());
  const double rounded = distance_from(exact, path_, PrefillWeights::kAuto, tokens);
  std::printf("%s, as in the file: mean KL %.3g nats, libllama's %.3g\n", GetParam().model, rounded, peer);
  std::fflush(stdout);
  EXPECT_LE(rounded, 1.5 * peer) << "farther than what two ways of rounding differ by over so few tokens";
}

std::string test_name(const testing::TestParamInfo<Bounds>& bounds) {
  std::string name;
  for (const char c : std::string(bounds.param.model)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelTest, testing::ValuesIn(kBounds), test_name);

}  // namespace
}  // namespace winnow::test
