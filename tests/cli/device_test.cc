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
  expect_error(ErrorCode::kUnsupported, "r4 (keys)", [&] {
    info_command({"-m", model.path(), "--device", "host", "-ctk", "r4"});
  });
  const TinyModel large({.n_layer = 2, .n_vocab = 20'000});
  expect_error(ErrorCode::kOutOfMemory, "the model's weights take", [&] {
    info_command({"-m", large.path(), "--device", "host:1"});
  });
}

}  // namespace
}  // namespace winnow::cli
