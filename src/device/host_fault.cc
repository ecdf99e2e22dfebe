#include "device/host_fault.h"

#include <atomic>

#include "winnow/error.h"

namespace winnow::device {
namespace {

constinit std::atomic<std::int64_t> allocations_left = 0;  // until one fails; 0 or less: none does
constinit std::atomic<std::int64_t> works_left = 0;
constinit std::atomic<bool> has_failed = false, lost = false;

}  // namespace

HostFault::HostFault(Kind kind, std::int64_t n) {
  has_failed = false;
  (kind == Kind::kOutOfMemory ? allocations_left : works_left) = n;
}

HostFault::~HostFault() {
  allocations_left = 0;
  works_left = 0;
  lost = false;
}

bool HostFault::has_happened() const { return has_failed; }

void HostFault::before_allocation() {
  if (allocations_left <= 0 || --allocations_left > 0) return;
  has_failed = true;
  throw Error(ErrorCode::kOutOfMemory, "the test device has no memory left, as its test wants");
}

void HostFault::before_work() {
  if (works_left > 0 && --works_left == 0) has_failed = lost = true;
  if (lost) throw Error(ErrorCode::kInternal, "the test device is lost, as its test wants");
}

bool HostFault::is_lost() { return lost; }

}  // namespace winnow::device
