// A plugin with one device that cannot be opened, or one that does not fit the program (see CMakeLists.txt).
#include <ggml.h>

#include <string>
#include <vector>

#include "device/plugin.h"
#include "winnow/error.h"
#include "winnow/version.h"

namespace {

using winnow::Error;
using winnow::ErrorCode;
namespace device = winnow::device;

[[maybe_unused]] std::vector<device::DeviceInfo> list(std::string& missing) {
  missing = "";
  return {{.id = "cuda:0", .name = "a card", .description = "of paper", .bytes_total = 1000}};
}

[[maybe_unused]] std::shared_ptr<device::Device> open(int index) {
  throw Error(ErrorCode::kNotFound, "there is one device, cuda:0, and no cuda:" + std::to_string(index));
}

}  // namespace

#ifndef TEST_PLUGIN_NO_FUNCTION
extern "C" __attribute__((visibility("default"))) const device::Plugin* winnow_device_plugin();

const device::Plugin* winnow_device_plugin() {
  static const device::Plugin plugin{
#ifdef TEST_PLUGIN_OTHER_WINNOW
      .winnow_version = "0.0.1",
#else
      .winnow_version = winnow::kVersion,
#endif
#ifdef TEST_PLUGIN_OTHER_GGML
      .ggml_version = "0.0.2",
#else
      .ggml_version = ggml_version(),
#endif
#ifdef TEST_PLUGIN_OTHER_INTERFACE
      .interface = "another",
#else
      .interface = device::kPluginInterface,
#endif
      .list = list,
      .open = open};
  return &plugin;
}
#endif
