// Functions that ggml's CUDA back end has but does not declare in public: compiled against the pinned sources.
#include "device/cuda/cuda_kernels.h"
#include "ggml-backend-impl.h"
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-impl.h"

namespace winnow::device {

cudaStream_t stream_of(ggml_backend* backend) {
  return static_cast<ggml_backend_cuda_context*>(backend->context)->stream();
}

int compute_nodes(ggml_backend* backend, ggml_cgraph* graph, int first, int last) {
  ggml_cgraph nodes = ggml_graph_view(graph, first, last);  // keeps the whole graph's use counts of nodes
  return ggml_backend_graph_compute_async(backend, &nodes);
}

bool convert_to_bf16(cudaStream_t stream, int type, const void* from, void* to, std::int64_t n) {
  if (type == GGML_TYPE_BF16) {
    CUDA_CHECK(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(n) * sizeof(nv_bfloat16), cudaMemcpyDeviceToDevice, stream));
    return true;
  }
  const to_bf16_cuda_t convert = ggml_get_to_bf16_cuda(static_cast<ggml_type>(type));
  if (convert == nullptr) return false;
  convert(from, static_cast<nv_bfloat16*>(to), n, stream);
  return true;
}

}  // namespace winnow::device
