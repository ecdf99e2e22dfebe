// Commands of the tool that compute on a device, with the test device (device/host_device.h).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "expect_error.h"
#include "model/tiny_model.h"

namespace winnow::cli {
namespace {

using test::expect_error;
using test::TinyModel;

nlohmann::json info_of(const Arguments& arguments) {
  testing::internal::CaptureStdout();
  const int status = info_command(arguments);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  return nlohmann::json::parse(said);
}

TEST(ToolOnADevice, InfoCountsTheDevicesMemory) {
  const TinyModel model({.n_layer = 2});
  const auto small = info_of({"-m", model.path(), "--device", "host:8", "--json", "-"});
  const auto large = info_of({"-m", model.path(), "--device", "host:64", "--json", "-"});
  EXPECT_EQ(small["memory"]["device"], "host");
  EXPECT_EQ(small["memory"]["total_bytes"], 8 << 20);
  // The weights take as much of both.
  const auto taken = [](const nlohmann::json& json) {
    return json["memory"]["total_bytes"].get<std::int64_t>() - json["memory"]["available_bytes"].get<std::int64_t>();
  };
  EXPECT_GE(taken(small), small["model"]["bytes"].get<std::int64_t>() / 2);
  EXPECT_EQ(taken(small), taken(large));
  EXPECT_GT(small["fits"]["full"], 0);
  EXPECT_GT(small["fits"]["5%"], small["fits"]["full"]);
  EXPECT_GT(large["fits"]["full"], small["fits"]["full"]);
}

TEST(ToolOnADevice, InfoSaysWhatItCannotDoThere) {
  const TinyModel model({.n_layer = 2});
  expect_error(ErrorCode::kUnsupported, "f32 (keys)", [&] {
    info_command({"-m", model.path(), "--device", "host", "-ctk", "f32"});
  });
  const TinyModel large({.n_layer = 2, .n_vocab = 20'000});
  expect_error(ErrorCode::kOutOfMemory, "the model's weights take", [&] {
    info_command({"-m", large.path(), "--device", "host:1"});
  });
}

TEST(ToolOnADevice, SomeLayersWeightsStayThere) {
  const TinyModel model({.n_layer = 4, .n_ff = 512});
  testing::internal::CaptureStderr();
  const auto some = info_of({"-m", model.path(), "--device", "host:64", "-ngl", "1", "--json", "-"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "note: the weights of 3 of 4 layers do not stay on host: they are copied there whenever they are used, so "
            "answers take longer\n");
  testing::internal::CaptureStderr();
  const auto all = info_of({"-m", model.path(), "--device", "host:64", "-ngl", "99", "--json", "-"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(some["memory"]["available_bytes"].get<std::int64_t>(),
            all["memory"]["available_bytes"].get<std::int64_t>());
}

TEST(ToolOnADevice, BenchTellsTheLayersThatStay) {
  const TinyModel model({.n_layer = 2});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(bench_command(
                {"-m", model.path(), "--device", "host", "-ngl", "1", "-p", "8", "-n", "1", "-r", "1", "-o", "json"}),
            0);
  testing::internal::GetCapturedStderr();
  const auto rows = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(rows.at(0)["n_gpu_layers"], 1);
}

TEST(ToolOnADevice, LayersThatStayNeedADevice) {
  const TinyModel model({.n_layer = 2});
  for (const Arguments& arguments : {Arguments{"-m", model.path(), "-ngl", "1"}, Arguments{"--devices", "-ngl", "1"}}) {
    EXPECT_THROW(info_command(arguments), UsageError);
  }
}

}  // namespace
}  // namespace winnow::cli
