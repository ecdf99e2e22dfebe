// A device that runs on this machine's processor, for tests: ggml's CPU back end, and winnow's kernels compiled with
// fibers as their threads. Only queued work can access its memory: a pointer that host code follows faults. Memory that
// was never written reads as NaN in every format. The device can record, so that recordings are tested, too.
//
// It exists in programs that are linked with winnow_host_device, as --device host.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace winnow::device {

struct HostDeviceOptions {
  std::size_t bytes = std::size_t{64} << 30;  // size of the memory that it reports
  int n_threads = 1;                          // for graphs; kernels run on the caller's thread
};

// Throws Error(kOutOfMemory) if the system cannot reserve such a range of addresses.
std::shared_ptr<Device> open_host_device(const HostDeviceOptions& options);
// mib: size of the memory in MiB; 0: HostDeviceOptions' default
std::shared_ptr<Device> open_host_device(int mib = 0);

}  // namespace winnow::device
