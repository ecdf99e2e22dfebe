// Which devices this machine has, and one of them by its name. CUDA is loaded here and only here, when it is asked for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace winnow::device {

// Throws Error(kInvalidArgument) for what is no name of a device: "cpu", "auto", "cuda", "cuda:N", or "host" and
// "host:MIB", which programs have that are linked with HostDevice (host_device.h). Loads nothing.
void check_device_name(std::string_view name);

// Returns the devices that can be opened, "cpu" first. missing: if not null, a sentence that says why there is no GPU
// and what to do, or empty. Throws nothing for want of a GPU.
std::vector<DeviceInfo> list_devices(std::string* missing = nullptr);

// Returns the device of a name; null for "cpu", and for "auto" where there is no GPU to be used: the engine computes
// itself. "cuda" is "cuda:0". Throws Error:
//   kInvalidArgument  no name of a device
//   kNotFound         there is no plugin, no driver, or no device of that number
//   kUnsupported      a plugin of another version, or one that does not load; a driver that is too old
//   kOutOfMemory      the device has no room left for the little that opening takes
// Where a plugin is there and does not fit, "auto" throws, too. Thread-safe.
std::shared_ptr<Device> open_device(std::string_view name);

}  // namespace winnow::device
