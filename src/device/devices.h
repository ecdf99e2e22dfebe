// Lists this machine's devices and opens one by its name. Only these functions load CUDA, and only when it is asked
// for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace winnow::device {

// Throws Error(kInvalidArgument) unless `name` is a device's name: "cpu", "auto", "cuda", "cuda:N", or "host" and
// "host:MIB" in programs that are linked with HostDevice (host_device.h). Loads no library.
void check_device_name(std::string_view name);

// Returns the devices that can be opened, "cpu" first. missing: if not null, receives a sentence that says why there is
// no GPU and what to do, or empty. Does not throw if there is no GPU.
std::vector<DeviceInfo> list_devices(std::string* missing = nullptr);

// Returns the device of a name; null for "cpu", and for "auto" if there is no usable GPU: the engine then computes on
// the processor. "cuda" is "cuda:0". Throws Error:
//   kInvalidArgument  the name is no device's
//   kNotFound         there is no plugin, no driver, or no device of that number
//   kUnsupported      the plugin has another version or does not load, or the driver is too old
//   kOutOfMemory      the device lacks the little memory that opening takes
// "auto" throws, too, if there is a plugin that does not fit. Thread-safe.
std::shared_ptr<Device> open_device(std::string_view name);

}  // namespace winnow::device
