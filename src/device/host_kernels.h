// winnow's kernels on fibers: they run when they are called, and the device's memory is open meanwhile.
#pragma once

#include "device/kernel_plans.h"

namespace winnow::device {

void run_on_host(const StoreRows& plan);
void run_on_host(const CausalAttention& plan);
void run_on_host(const StepAttention& plan);
void run_on_host(const WindowStatistics& plan);
void run_on_host(const RowNorms& plan);

}  // namespace winnow::device
