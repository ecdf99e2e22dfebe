// The interface of a shared library for another kind of device: one C function that returns a Plugin. The library must
// come from the same build of winnow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace winnow::device {

struct Plugin {
  // These three have the same place in every version, so that a reader can check whether the rest fits.
  const char* winnow_version;  // kVersion
  const char* ggml_version;    // version of the sources of its ggml back end
  const char* interface;       // kPluginInterface

  // Returns the devices that it could open. `missing`: the reason why there are none or fewer, and the remedy; empty if
  // there is no such reason.
  std::vector<DeviceInfo> (*list)(std::string& missing);
  // Opens a device. Throws Error(kNotFound) for an index that list() does not have, Error(kUnsupported) if the device
  // or its driver fails.
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
