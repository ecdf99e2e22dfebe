#include "device/cuda/cuda_kernels.h"
#include "device/kernels/causal_attention_sm90-inl.h"
#include "device/kernels/queue_kernel-inl.h"

namespace winnow::device {
namespace {

__global__ void kernel_of_no_effect() {}

}  // namespace

cudaError_t launch_kernel(cudaStream_t stream, const KernelPlan& plan) {
  simt::Queue queue{.stream = stream};
  const auto* attention = std::get_if<CausalAttention>(&plan);
  if (attention == nullptr || !queue_sm90_causal_attention(queue, *attention)) queue_kernel(queue, plan);
  return queue.error;
}

cudaError_t check_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel_of_no_effect);
}

}  // namespace winnow::device
