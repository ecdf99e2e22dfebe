// The only exported symbol of libwinnow-cuda.so.
#include "device/plugin.h"

#include "device/cuda/cuda_device.h"
#include "winnow/version.h"

extern "C" __attribute__((visibility("default"))) const winnow::device::Plugin* winnow_device_plugin();

const winnow::device::Plugin* winnow_device_plugin() {
  static const winnow::device::Plugin plugin{.winnow_version = winnow::kVersion,
                                             .ggml_version = WINNOW_GGML_CUDA_VERSION,
                                             .interface = winnow::device::kPluginInterface,
                                             .list = winnow::device::list_cuda_devices,
                                             .open = winnow::device::open_cuda_device};
  return &plugin;
}
