// The device kernels as this machine's processor runs them, for tests: before a call returns.
#pragma once

#include "device/kernel_plans.h"
#include "device/kernels/simt_host.h"

namespace winnow::device::fibers {

void run(simt::Queue& queue, const CausalAttention& plan);
void run(simt::Queue& queue, const StepAttention& plan);
void run(simt::Queue& queue, const StoreRows& plan);
void run(simt::Queue& queue, const WindowStatistics& plan);
void run(simt::Queue& queue, const RowNorms& plan);
void run(simt::Queue& queue, const RowsToBf16& plan);
void run(simt::Queue& queue, const NormedToBf16& plan);
void run(simt::Queue& queue, const GatedToBf16& plan);
void run(simt::Queue& queue, const VectorProduct& plan);
void run(simt::Queue& queue, const QuantiseRows& plan);
void run(simt::Queue& queue, const RmsNormRows& plan);
void run(simt::Queue& queue, const GatedRows& plan);
void run(simt::Queue& queue, const ProjectedNorms& plan);
void run(simt::Queue& queue, const ColumnFolds& plan);
void run(simt::Queue& queue, const QueryMoments& plan);
void run(simt::Queue& queue, const ExpectedScores& plan);
void run(simt::Queue& queue, const RowLengths& plan);
void run(simt::Queue& queue, const Copies& plan);

}  // namespace winnow::device::fibers
