// Devices by name, and plugins that cannot be used.
#include "device/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../expect_error.h"

namespace winnow::device {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

// Sets the environment's WINNOW_CUDA_PLUGIN during its lifetime.
class Plugin {
 public:
  explicit Plugin(const std::string& path) { setenv("WINNOW_CUDA_PLUGIN", path.c_str(), 1); }
  ~Plugin() { unsetenv("WINNOW_CUDA_PLUGIN"); }
};

// Returns whether a plugin lies next to the tests, which is used when none is named.
bool has_own_plugin() { return fs::exists(fs::read_symlink("/proc/self/exe").parent_path() / "libwinnow-cuda.so"); }

void expect_no_use_of(const std::string& path, ErrorCode code, const std::string& part) {
  const Plugin plugin(path);
  expect_error(code, part, [] { open_device("cuda"); });
  expect_error(code, part, [] { open_device("auto"); });
  std::string missing;
  EXPECT_EQ(list_devices(&missing).size(), 1U);
  EXPECT_NE(missing.find(part), std::string::npos) << missing;
}

TEST(DevicesTest, NamesThatAreNoneAreRefused) {
  for (const char* name :
       {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda: 0", "cuda:99999999999", "cpu:0", "host"}) {
    expect_error(ErrorCode::kInvalidArgument, "cpu, auto, cuda or cuda:N", [&] { open_device(name); });
    expect_error(ErrorCode::kInvalidArgument, "winnow info --devices", [&] { check_device_name(name); });
  }
  for (const char* name : {"cpu", "auto", "cuda", "cuda:0", "cuda:15"}) EXPECT_NO_THROW(check_device_name(name));
}

TEST(DevicesTest, TheProcessorIsAlwaysThere) {
  EXPECT_EQ(open_device("cpu"), nullptr);
  const std::vector<DeviceInfo> devices = list_devices();
  ASSERT_GE(devices.size(), 1U);
  EXPECT_EQ(devices[0].id, "cpu");
  EXPECT_GT(devices[0].bytes_total, std::size_t{1} << 20);
}

TEST(DevicesTest, WithoutAPluginItIsSaidHowToGetOne) {
  if (has_own_plugin()) GTEST_SKIP() << "this build has a plugin";
  expect_error(ErrorCode::kNotFound, "`make cuda`", [] { open_device("cuda:0"); });
  EXPECT_EQ(open_device("auto"), nullptr);
  std::string missing;
  EXPECT_EQ(list_devices(&missing).size(), 1U);
  EXPECT_NE(missing.find("`make cuda`"), std::string::npos) << missing;
}

TEST(DevicesTest, APluginOfAnotherVersionIsRefused) {
  expect_no_use_of(TEST_PLUGIN_OTHER_WINNOW, ErrorCode::kUnsupported, "was built for winnow 0.0.1");
  expect_no_use_of(TEST_PLUGIN_OTHER_GGML, ErrorCode::kUnsupported, "was built for ggml 0.0.2");
  expect_no_use_of(TEST_PLUGIN_OTHER_INTERFACE, ErrorCode::kUnsupported, "was built for the interface another");
}

TEST(DevicesTest, WhatIsNoPluginIsRefused) {
  expect_no_use_of(TEST_PLUGIN_NO_FUNCTION, ErrorCode::kUnsupported, "not winnow's plugin");
  const fs::path text = fs::temp_directory_path() / ("winnow-plugin-" + std::to_string(getpid()) + ".so");
  std::ofstream(text) << "this is no library";
  expect_no_use_of(text, ErrorCode::kUnsupported, "cannot be loaded");
  fs::resize_file(text, 0);
  expect_no_use_of(text, ErrorCode::kUnsupported, "cannot be loaded");
  fs::remove(text);
  expect_no_use_of(text, ErrorCode::kNotFound, "does not exist");
  expect_no_use_of(fs::temp_directory_path(), ErrorCode::kUnsupported, "cannot be loaded");
}

TEST(DevicesTest, AFittingPluginIsUsed) {
  const Plugin plugin(TEST_PLUGIN_FITTING);
  std::string missing;
  const std::vector<DeviceInfo> devices = list_devices(&missing);
  ASSERT_EQ(devices.size(), 2U) << missing;
  EXPECT_EQ(missing, "");
  EXPECT_EQ(devices[1].id, "cuda:0");
  EXPECT_EQ(devices[1].name, "a card");
  // The plugin's errors are passed on unchanged.
  expect_error(ErrorCode::kNotFound, "no cuda:3", [] { open_device("cuda:3"); });
  expect_error(ErrorCode::kNotFound, "no cuda:0", [] { open_device("auto"); });
}

}  // namespace
}  // namespace winnow::device
