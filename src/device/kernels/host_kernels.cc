#include "device/kernels/host_kernels.h"

#include "device/kernels/queue_kernel-inl.h"

namespace winnow::device::fibers {

void run(simt::Queue& queue, const KernelPlan& plan) { queue_kernel(queue, plan); }

}  // namespace winnow::device::fibers
