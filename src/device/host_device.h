// A device made of this machine's processor, for tests: ggml's CPU back end and winnow's kernels compiled for threads
// as fibers. Its memory cannot be touched but by what is queued: a pointer that code of the host follows faults. What
// was never written reads as NaN in every format. It can record, so that what is recorded can be tested, too.
//
// Programs that are linked with winnow_host_device have it, as --device host.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace winnow::device {

struct HostDeviceOptions {
  std::size_t bytes = std::size_t{64} << 30;  // of memory that it pretends to have
  int n_threads = 1;                          // of graphs; kernels run on the caller's
};

// Throws Error(kOutOfMemory) where the system has no such range of addresses.
std::shared_ptr<Device> open_host_device(const HostDeviceOptions& options);
// mib: of memory; 0: HostDeviceOptions'.
std::shared_ptr<Device> open_host_device(int mib = 0);

}  // namespace winnow::device
