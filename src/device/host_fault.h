// Faults of the test device (host_device.h), for tests of what follows them.
#pragma once

#include <cstdint>

namespace winnow::device {

// A fault of every test device, which ends with this object: the devices then work as before. Only one may exist at a
// time.
class HostFault {
 public:
  enum class Kind {
    kOutOfMemory,  // the n-th allocation after this fails, once
    kLost          // the n-th kernel, graph or copy from or to the device fails, and all that follows it
  };
  HostFault(Kind kind, std::int64_t n);
  HostFault(const HostFault&) = delete;
  HostFault& operator=(const HostFault&) = delete;
  ~HostFault();

  bool has_happened() const;

  // The devices call these. Throw Error(kOutOfMemory) and Error(kInternal).
  static void before_allocation();
  static void before_work();
  // Returns whether the devices are lost, in which case they do nothing.
  static bool is_lost();
};

}  // namespace winnow::device
