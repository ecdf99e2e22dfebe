// An NVIDIA GPU: ggml's CUDA back end and winnow's kernels in one stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace winnow::device {

// Implement Plugin::list and Plugin::open (plugin.h).
std::vector<DeviceInfo> list_cuda_devices(std::string& missing);
std::shared_ptr<Device> open_cuda_device(int index);

}  // namespace winnow::device
