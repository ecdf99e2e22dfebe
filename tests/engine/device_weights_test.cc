// Models of which a device's memory holds some layers' weights only, beside engines that hold all of them.
#include "engine/device/device_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/devices.h"
#include "device/host_fault.h"
#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"
#include "sanitizers.h"

namespace winnow::test {
namespace {

std::shared_ptr<Engine> engine_with(const std::shared_ptr<const Model>& model, int device_layers,
                                    const std::string& device = device_under_test()) {
  EngineOptions options{.n_threads = 2, .n_batch = 48};
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

// Returns whether a matrix on the device is the file's.
bool is_there(device::Device& device, const ggml_tensor* on_device, const ggml_tensor* in_file) {
  std::vector<std::byte> bytes(ggml_nbytes(in_file));
  device.download(bytes.data(), on_device->data, bytes.size());
  return std::memcmp(bytes.data(), in_file->data, bytes.size()) == 0;
}

// The test device's uploads beside its queue come when they are waited for, and their places hold no numbers until
// then.
TEST(DeviceWeights, TheNextLayerIsCopiedWhileALayerComputes) {
  TinyModelOptions tiny;
  tiny.n_layer = 4;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const Model::Impl& impl = model->impl();
  const Weights in_file = load_weights(impl.file, impl.spec);
  const std::shared_ptr<device::Device> device = device::open_device("host:64");
  DeviceWeights weights(*device, impl, 1);
  const auto there = [&] {  // the layers whose matrices are on the device
    std::vector<int> layers;
    for (int l = 0; l < 4; ++l) {
      const auto at = static_cast<std::size_t>(l);
      const ggml_tensor* const matrix = weights.stored().layers[at].wo;
      if (is_there(*device, matrix, in_file.layers[at].wo)) layers.push_back(l);
    }
    return layers;
  };
  const auto use = [&](int layer) {
    weights.use(layer);
    return there();
  };
  EXPECT_EQ(use(0), std::vector<int>{0});
  EXPECT_EQ(use(1), (std::vector<int>{0, 1}));  // 2 is on its way
  EXPECT_EQ(use(1), (std::vector<int>{0, 1}));
  EXPECT_EQ(use(3), (std::vector<int>{0, 2, 3}));  // out of order: what was on its way is let end
  EXPECT_EQ(use(1), (std::vector<int>{0, 1, 2}));  // 1 and 3 have the same place
  EXPECT_EQ(use(2), (std::vector<int>{0, 2}));     // 3 is on its way
  EXPECT_EQ(use(3), (std::vector<int>{0, 2, 3}));  // the next pass begins with 1, whose place is taken
  const device::HostFault fault(device::HostFault::Kind::kLost, 1);
  expect_error(ErrorCode::kInternal, "lost", [&] { weights.use(1); });
}

// A device that failed to copy a layer is asked again.
TEST(DeviceWeights, ALayerThatDidNotComeIsFetchedAgain) {
  TinyModelOptions tiny;
  tiny.n_layer = 3;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  const Model::Impl& impl = model->impl();
  const Weights in_file = load_weights(impl.file, impl.spec);
  const std::shared_ptr<device::Device> device = device::open_device("host:64");
  DeviceWeights weights(*device, impl, 0);
  weights.use(0);
  {
    const device::HostFault fault(device::HostFault::Kind::kLost, 1);
    expect_error(ErrorCode::kInternal, "lost", [&] { weights.use(1); });
  }
  weights.use(1);
  EXPECT_TRUE(is_there(*device, weights.stored().layers[1].wo, in_file.layers[1].wo));
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
TEST(DeviceWeights, LongPromptsConvertStreamedLayers) {
  if (kHasSanitizers) GTEST_SKIP() << "a minute with sanitizers, which see as much in other tests";
  TinyModelOptions tiny = tiny_options("qwen2moe");
  tiny.n_layer = 2;
  tiny.weight_type = 1, tiny.shared_n_ff = 88;  // f16; whole groups of 8 are converted
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  EXPECT_EQ(answers_of(*engine_with(model, 0), for_device(full_options()), 1040, tiny.n_vocab),
            answers_of(*engine_with(model, 2), for_device(full_options()), 1040, tiny.n_vocab));
}

// Between the batches of a layer's rows others may have used another layer.
TEST(DeviceWeights, StepsComeBetweenTheBatchesOfALongPrompt) {
  if (kHasSanitizers) GTEST_SKIP() << "a minute with sanitizers, which see as much in other tests";
  TinyModelOptions tiny = tiny_options("qwen2moe");
  tiny.n_layer = 2;
  tiny.weight_type = 1, tiny.shared_n_ff = 88;
  const std::shared_ptr<const Model> model = tiny_model(tiny);
  std::vector<float> logits[2];
  for (const int n : {0, 2}) {
    EngineOptions options{.n_threads = 2, .n_batch = 600};
    options.device = device_under_test();
    options.device_layers = n;
    const std::shared_ptr<Engine> engine = Engine::create(model, options);
    Session session = engine->open(for_device(full_options())), other = engine->open(for_device(full_options()));
    other.prefill(random_tokens(8, tiny.n_vocab, 2));
    Session* const sessions[] = {&session};
    Prefill prefill = engine->start_prefill(sessions, random_tokens(1100, tiny.n_vocab, 1));
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

}  // namespace
}  // namespace winnow::test
