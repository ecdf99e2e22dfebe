// Models of which a device's memory holds some layers' weights only, beside engines that hold all of them.
#include "engine/device/device_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/devices.h"
#include "device/host_device.h"
#include "device/host_fault.h"
#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

std::shared_ptr<Engine> engine_with(const std::shared_ptr<const Model>& model, int device_layers,
                                    const std::string& device = device_under_test(),
                                    PrefillWeights prefill_weights = PrefillWeights::kAuto) {
  EngineOptions options{.n_threads = 2, .n_batch = 48, .prefill_weights = prefill_weights};
  options.device = device;
  options.device_layers = device_layers;
  return Engine::create(model, options);
}

// Returns the logits of a prompt, of steps, of a turn after them, whose cut measures all layers again, and of steps.
std::vector<std::vector<float>> answers_of(Engine& engine, const SessionOptions& options, std::int32_t n_prompt,
                                           int n_vocab) {
  Session session = engine.open(options);
  session.prefill(random_tokens(n_prompt, n_vocab, 1));
  std::vector<std::vector<float>> logits = {logits_of(session)};
  for (std::vector<float>& of_step : decode_all(session, random_tokens(4, n_vocab, 2))) logits.push_back(of_step);
  session.prefill(random_tokens(10, n_vocab, 3));
  logits.push_back(logits_of(session));
  for (std::vector<float>& of_step : decode_all(session, random_tokens(2, n_vocab, 4))) logits.push_back(of_step);
  return logits;
}

TEST(DeviceWeights, StreamedLayersComputeWhatResidentOnesDo) {
  for (const char* architecture : {"llama", "gemma2", "qwen3moe", "gpt-oss"}) {
    SCOPED_TRACE(architecture);
    TinyModelOptions tiny = tiny_options(architecture);
    tiny.n_layer = 3;
    const std::shared_ptr<const Model> model = tiny_model(tiny);
    const std::shared_ptr<Engine> resident = engine_with(model, -1);
    EXPECT_EQ(resident->n_streamed_layers(), 0);
    const auto expected = answers_of(*resident, for_device(full_options()), 60, tiny.n_vocab);
    for (const int n : {0, 1, 2}) {
      const std::shared_ptr<Engine> streamed = engine_with(model, n);
      EXPECT_EQ(streamed->n_streamed_layers(), 3 - n);
      EXPECT_EQ(answers_of(*streamed, for_device(full_options()), 60, tiny.n_vocab), expected) << n;
    }
  }
}

TEST(DeviceWeights, ScalesOfProductsApplyAsOnTheProcessor) {
  for (const char* architecture : {"llama", "qwen3moe"}) {
    SCOPED_TRACE(architecture);
    TinyModelOptions tiny = tiny_options(architecture);
    tiny.n_layer = 3;
    const bool has_experts = tiny.n_expert > 0;
    for (int l = 0; l < tiny.n_layer; ++l) {
      add_product_scales(tiny, l, {"attn_v", "attn_output"});
      if (has_experts) add_product_scales(tiny, l, {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"});
      if (!has_experts) add_product_scales(tiny, l, {"ffn_gate", "ffn_up", "ffn_down"});
    }
    const std::shared_ptr<const Model> model = tiny_model(tiny);
    const auto answers = [&](const char* device) {
      return answers_of(*engine_with(model, -1, device), for_device(full_options()), 60, tiny.n_vocab);
    };
    const auto expected = answers("cpu"), own = answers(device_under_test().c_str());
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_LT(kl_divergence(expected[i], own[i]), 1e-3) << i;
  }
}

// The weights of a model of four layers on a test device.
class StreamedWeights {
 public:
  explicit StreamedWeights(int n_resident, const TinyModelOptions& options = {.n_layer = 4},
                           const std::string& device = "host:64")
      : model_(tiny_model(options)),
        device_(device::open_device(device)),
        weights_(*device_, model_->impl(), n_resident) {}

  // Uses a layer, and returns those whose matrices are then on the device.
  std::vector<int> use(int layer) {
    weights_.use(layer);
    std::vector<int> there;
    for (std::size_t l = 0; l < 4; ++l) {
      const ggml_tensor* const matrix = in_file_.layers[l].wo;
      std::vector<std::byte> bytes(ggml_nbytes(matrix));
      device_->download(bytes.data(), weights_.stored().layers[l].wo->data, bytes.size());
      if (std::memcmp(bytes.data(), matrix->data, bytes.size()) == 0) there.push_back(static_cast<int>(l));
    }
    return there;
  }

 private:
  std::shared_ptr<const Model> model_;
  Weights in_file_ = load_weights(model_->impl().file, model_->impl().spec);
  std::shared_ptr<device::Device> device_;
  DeviceWeights weights_;
};

// The test device's uploads beside its queue come when they are waited for, and their places hold no numbers until
// then.
TEST(DeviceWeights, TheNextLayerIsCopiedWhileALayerComputes) {
  StreamedWeights weights(1);
  EXPECT_EQ(weights.use(0), std::vector<int>{0});
  EXPECT_EQ(weights.use(1), (std::vector<int>{0, 1}));  // 2 is on its way
  EXPECT_EQ(weights.use(1), (std::vector<int>{0, 1}));
  EXPECT_EQ(weights.use(3), (std::vector<int>{0, 2, 3}));  // out of order: what was on its way is let end
  EXPECT_EQ(weights.use(1), (std::vector<int>{0, 1, 2}));  // 1 and 3 have the same place
  EXPECT_EQ(weights.use(2), (std::vector<int>{0, 2}));     // 3 is on its way
  EXPECT_EQ(weights.use(3), (std::vector<int>{0, 2, 3}));  // the next pass begins with 1, whose place is taken
}

// The device has 2 MiB, of which a layer takes 1.2.
TEST(DeviceWeights, LayersOfWhichOneFitsHaveOnePlace) {
  StreamedWeights weights(0, {.n_layer = 4, .n_ff = 1500}, "host:2");
  EXPECT_EQ(weights.use(0), std::vector<int>{0});
  EXPECT_EQ(weights.use(0), std::vector<int>{0});
  EXPECT_EQ(weights.use(1), std::vector<int>{1});
  EXPECT_EQ(weights.use(3), std::vector<int>{3});
}

TEST(DeviceWeights, ALayerThatDidNotComeIsFetchedAgain) {
  StreamedWeights weights(0);
  EXPECT_EQ(weights.use(0), std::vector<int>{0});
  {
    const device::HostFault fault(device::HostFault::Kind::kLost, 1);
    expect_error(ErrorCode::kInternal, "lost", [&] { weights.use(1); });
  }
  EXPECT_EQ(weights.use(1), std::vector<int>{1});  // 2 comes to the place of 0
}

// Values are projected by W_O, of all layers in turn while the prompt is read, and again when a turn is cut.
TEST(DeviceWeights, MethodsReadWeightsOfStreamedLayers) {
  TinyModelOptions tiny;
  tiny.n_layer = 3;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const std::shared_ptr<Engine> resident = engine_with(model, 3), streamed = engine_with(model, 1);
  for (const char* method : {"critical-ada-snapkv", "lava:selector=critical"}) {
    SCOPED_TRACE(method);
    const SessionOptions options = for_device(evicting_options(method, "40"));
    EXPECT_EQ(answers_of(*streamed, options, 120, tiny.n_vocab), answers_of(*resident, options, 120, tiny.n_vocab));
  }
}

// Matrices of long prompts are converted to bfloat16, of which the experts' are not.
TEST(DeviceWeights, ConvertedLayersMayBeStreamed) {
  TinyModelOptions tiny = tiny_options("qwen2moe");
  tiny.n_layer = 2;
  tiny.weight_type = 1, tiny.shared_n_ff = 88;  // f16; whole groups of 8 are converted
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const auto answers = [&](int n_resident) {
    const auto engine = engine_with(model, n_resident, device_under_test(), PrefillWeights::kBf16);
    return answers_of(*engine, for_device(full_options()), 100, tiny.n_vocab);
  };
  EXPECT_EQ(answers(0), answers(2));
}

// Weights are converted for long prompts, or for all, or for none.
TEST(DeviceWeights, AreConvertedAsTheOptionsSay) {
  const std::shared_ptr<const Model> model = tiny_model({.n_layer = 1, .weight_type = 8, .seed = 5});  // q8_0
  const auto logits = [&](PrefillWeights weights, std::int32_t n_prompt) {
    Session session = engine_with(model, -1, device_under_test(), weights)->open(for_device(full_options()));
    session.prefill(random_tokens(n_prompt, 300, 1));
    return logits_of(session);
  };
  const std::vector<float> converted = logits(PrefillWeights::kBf16, 20), as_is = logits(PrefillWeights::kAsIs, 20);
  EXPECT_NE(converted, as_is);
  EXPECT_LT(kl_divergence(as_is, converted), 1e-2);
  EXPECT_EQ(logits(PrefillWeights::kFloat, 20), converted);
  EXPECT_EQ(logits(PrefillWeights::kInt8, 20), as_is);
  EXPECT_EQ(logits(PrefillWeights::kAuto, 20), as_is);
  EXPECT_EQ(logits(PrefillWeights::kAuto, 1040), logits(PrefillWeights::kBf16, 1040));
  expect_error(ErrorCode::kUnsupported, "prefill with weights auto, as-is or bf16, or use --device cpu",
               [&] { logits(PrefillWeights::kF32, 20); });
}

// Between the batches of a layer's rows others may have used another layer.
TEST(DeviceWeights, StepsComeBetweenTheBatchesOfALongPrompt) {
  TinyModelOptions tiny = tiny_options("qwen2moe");
  tiny.n_layer = 2;
  tiny.weight_type = 1, tiny.shared_n_ff = 88;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  std::vector<float> logits[2];
  for (const int n : {0, 2}) {
    EngineOptions options{.n_threads = 2, .n_batch = 60, .prefill_weights = PrefillWeights::kBf16};
    options.device = device_under_test();
    options.device_layers = n;
    const std::shared_ptr<Engine> engine = Engine::create(model, options);
    Session session = engine->open(for_device(full_options())), other = engine->open(for_device(full_options()));
    other.prefill(random_tokens(8, tiny.n_vocab, 2));
    Session* const sessions[] = {&session};
    Prefill prefill = engine->start_prefill(sessions, random_tokens(110, tiny.n_vocab, 1));
    while (prefill.step()) other.decode(1);
    logits[n / 2] = logits_of(session);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(DeviceWeights, AsManyLayersStayAsFit) {
  TinyModelOptions tiny;
  tiny.n_layer = 6;
  tiny.n_ff = 768;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const std::shared_ptr<Engine> large = engine_with(model, -1, "host:64"), small = engine_with(model, -1, "host:3");
  EXPECT_EQ(large->n_streamed_layers(), 0);
  EXPECT_GT(small->n_streamed_layers(), 0);
  EXPECT_LT(small->n_streamed_layers(), 6);
  EXPECT_EQ(answers_of(*small, for_device(full_options()), 20, tiny.n_vocab),
            answers_of(*large, for_device(full_options()), 20, tiny.n_vocab));
  EXPECT_EQ(engine_with(model, 99, "host:64")->n_streamed_layers(), 0);  // more than there are: all
  expect_error(ErrorCode::kOutOfMemory, "let fewer layers stay there (-ngl)",
               [&] { engine_with(model, 99, "host:3"); });
  const std::shared_ptr<const Model> wide = tiny_model({.n_layer = 2, .n_ff = 2048});  // of which no layer fits
  expect_error(ErrorCode::kOutOfMemory, "use a smaller or more quantised model",
               [&] { engine_with(wide, -1, "host:1"); });
  expect_error(ErrorCode::kInvalidArgument, "add --device cuda", [&] { engine_with(model, 2, "cpu"); });
  expect_error(ErrorCode::kInvalidArgument, "0 or more", [&] { engine_with(model, -2, "host:64"); });
}

// Layers are streamed where all weights fit, but not what a layer is converted to, or not with room for graphs.
TEST(DeviceWeights, LeaveRoomForAConvertedLayerAndForGraphs) {
  const std::shared_ptr<const Model> model = tiny_model({.n_layer = 6, .weight_type = 1});  // f16
  const auto weights_in = [&](std::size_t bytes, const auto& look) {
    const std::shared_ptr<device::Device> device = device::open_host_device({.bytes = bytes});
    look(DeviceWeights(*device, model->impl(), -1));
  };
  std::size_t whole = 0;
  weights_in(std::size_t{64} << 20, [&](const DeviceWeights& weights) { whole = weights.bytes(); });
  for (const std::size_t bytes : {whole - 1, whole + whole / 64}) {
    weights_in(bytes, [&](const DeviceWeights& weights) {
      EXPECT_GT(weights.n_streamed(), 0);
      EXPECT_LT(weights.n_streamed(), 6);
      EXPECT_LT(weights.bytes(), bytes);
    });
  }
  weights_in(whole + whole / 16, [&](const DeviceWeights& weights) { EXPECT_EQ(weights.n_streamed(), 0); });
}

}  // namespace
}  // namespace winnow::test
