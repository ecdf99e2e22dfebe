#include "device/cuda/cuda_kernels.h"
#include "device/kernels/bf16_rows-inl.h"
#include "device/kernels/causal_attention-inl.h"
#include "device/kernels/causal_attention_sm90-inl.h"
#include "device/kernels/column_folds-inl.h"
#include "device/kernels/copies-inl.h"
#include "device/kernels/projected_norms-inl.h"
#include "device/kernels/query_moments-inl.h"
#include "device/kernels/row_norms-inl.h"
#include "device/kernels/row_steps-inl.h"
#include "device/kernels/step_attention-inl.h"
#include "device/kernels/store_rows-inl.h"
#include "device/kernels/vector_products-inl.h"
#include "device/kernels/window_statistics-inl.h"

namespace winnow::device {
namespace {

__global__ void kernel_of_no_effect() {}

template <class Plan>
cudaError_t launch(void (*queue_plan)(simt::Queue&, const Plan&), cudaStream_t stream, const Plan& plan) {
  simt::Queue queue{.stream = stream};
  queue_plan(queue, plan);
  return queue.error;
}

}  // namespace

cudaError_t launch_kernel(cudaStream_t stream, const StoreRows& plan) { return launch(queue_store_rows, stream, plan); }
cudaError_t launch_kernel(cudaStream_t stream, const CausalAttention& plan) {
  return launch(
      +[](simt::Queue& queue, const CausalAttention& of) {
        if (!queue_sm90_causal_attention(queue, of)) queue_causal_attention(queue, of);
      },
      stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const StepAttention& plan) {
  return launch(queue_step_attention, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const WindowStatistics& plan) {
  return launch(queue_window_statistics, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const RowNorms& plan) { return launch(queue_row_norms, stream, plan); }
cudaError_t launch_kernel(cudaStream_t stream, const RowsToBf16& plan) {
  return launch(queue_rows_to_bf16, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const NormedToBf16& plan) {
  return launch(queue_normed_to_bf16, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const GatedToBf16& plan) {
  return launch(queue_gated_to_bf16, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const VectorProduct& plan) {
  return launch(queue_vector_product, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const QuantiseRows& plan) {
  return launch(queue_quantise_rows, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const RmsNormRows& plan) {
  return launch(queue_rms_norm_rows, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const GatedRows& plan) { return launch(queue_gated_rows, stream, plan); }
cudaError_t launch_kernel(cudaStream_t stream, const ProjectedNorms& plan) {
  return launch(queue_projected_norms, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const ColumnFolds& plan) {
  return launch(queue_column_folds, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const QueryMoments& plan) {
  return launch(queue_query_moments, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const ExpectedScores& plan) {
  return launch(queue_expected_scores, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const RowLengths& plan) {
  return launch(queue_row_lengths, stream, plan);
}
cudaError_t launch_kernel(cudaStream_t stream, const Copies& plan) { return launch(queue_copies, stream, plan); }

cudaError_t check_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel_of_no_effect);
}

}  // namespace winnow::device
