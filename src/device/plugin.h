// What a shared library of another kind of device exports: one C function that returns a Plugin. Only winnow's own
// libraries are meant, of the same build.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace winnow::device {

struct Plugin {
  // These three stay where they are in every version: who reads them finds out whether the rest fits.
  const char* winnow_version;  // kVersion
  const char* ggml_version;    // of the sources that its ggml back end was built from
  const char* interface;       // kPluginInterface

  // Returns the devices that it could open. `missing`: why there are none or fewer, and the way out; empty if nothing
  // is.
  std::vector<DeviceInfo> (*list)(std::string& missing);
  // Throws Error(kNotFound) for an index that list() does not have, Error(kUnsupported) where the device or its driver
  // fails.
  std::shared_ptr<Device> (*open)(int index);
};

// The name of the function, `extern "C" const winnow::device::Plugin* winnow_device_plugin()`.
inline constexpr const char* kPluginFunction = "winnow_device_plugin";
using PluginFunction = const Plugin* (*)();

// The digest of the headers between program and plugin, which change between versions.
#ifdef WINNOW_DEVICE_INTERFACE
inline constexpr const char* kPluginInterface = WINNOW_DEVICE_INTERFACE;
#endif

}  // namespace winnow::device
