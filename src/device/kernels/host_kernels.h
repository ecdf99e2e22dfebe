// The device kernels compiled for this machine's processor, for tests.
#pragma once

#include "device/kernel_plans.h"
#include "device/kernels/simt_host.h"

namespace winnow::device::fibers {

// Runs a kernel and waits for it.
void run(simt::Queue& queue, const KernelPlan& plan);

}  // namespace winnow::device::fibers
