// winnow's own kernels and ggml's internal ones, as functions for sources that nvcc does not compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/kernel_plans.h"

struct ggml_backend;
struct ggml_cgraph;

namespace winnow::device {

// Queues a kernel and returns CUDA's status of the launch.
cudaError_t launch_kernel(cudaStream_t stream, const KernelPlan& plan);

// Returns cudaSuccess if this library has code for the calling thread's device.
cudaError_t check_kernel_image();

// Returns the stream in which the graphs of ggml's CUDA back end run.
cudaStream_t stream_of(ggml_backend* backend);

// Queues the nodes first, ..., last - 1 of a graph; returns ggml's status. They are fused as in the whole graph.
int compute_nodes(ggml_backend* backend, ggml_cgraph* graph, int first, int last);

// Queues the conversion of n numbers of a ggml type to bf16. Returns false if ggml has none.
bool convert_to_bf16(cudaStream_t stream, int ggml_type, const void* from, void* to, std::int64_t n);

}  // namespace winnow::device
