// The device kernels as this machine's processor runs them, for tests.
#pragma once

#include "device/kernel_plans.h"
#include "device/kernels/simt_host.h"

namespace winnow::device::fibers {

// Runs a kernel before it returns.
void run(simt::Queue& queue, const KernelPlan& plan);

}  // namespace winnow::device::fibers
