#include "device/kernels/host_kernels.h"

#include "device/kernels/bf16_rows-inl.h"
#include "device/kernels/causal_attention-inl.h"
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

namespace winnow::device::fibers {

void run(simt::Queue& queue, const CausalAttention& plan) { queue_causal_attention(queue, plan); }
void run(simt::Queue& queue, const StepAttention& plan) { queue_step_attention(queue, plan); }
void run(simt::Queue& queue, const StoreRows& plan) { queue_store_rows(queue, plan); }
void run(simt::Queue& queue, const WindowStatistics& plan) { queue_window_statistics(queue, plan); }
void run(simt::Queue& queue, const RowNorms& plan) { queue_row_norms(queue, plan); }
void run(simt::Queue& queue, const RowsToBf16& plan) { queue_rows_to_bf16(queue, plan); }
void run(simt::Queue& queue, const NormedToBf16& plan) { queue_normed_to_bf16(queue, plan); }
void run(simt::Queue& queue, const GatedToBf16& plan) { queue_gated_to_bf16(queue, plan); }
void run(simt::Queue& queue, const VectorProduct& plan) { queue_vector_product(queue, plan); }
void run(simt::Queue& queue, const QuantiseRows& plan) { queue_quantise_rows(queue, plan); }
void run(simt::Queue& queue, const RmsNormRows& plan) { queue_rms_norm_rows(queue, plan); }
void run(simt::Queue& queue, const GatedRows& plan) { queue_gated_rows(queue, plan); }
void run(simt::Queue& queue, const ProjectedNorms& plan) { queue_projected_norms(queue, plan); }
void run(simt::Queue& queue, const ColumnFolds& plan) { queue_column_folds(queue, plan); }
void run(simt::Queue& queue, const QueryMoments& plan) { queue_query_moments(queue, plan); }
void run(simt::Queue& queue, const ExpectedScores& plan) { queue_expected_scores(queue, plan); }
void run(simt::Queue& queue, const RowLengths& plan) { queue_row_lengths(queue, plan); }
void run(simt::Queue& queue, const Copies& plan) { queue_copies(queue, plan); }

}  // namespace winnow::device::fibers
