// Maps each plan to its kernel, for the processor's fibers and for GPUs alike.
#pragma once

#include <variant>

#include "device/kernels/bf16_rows-inl.h"
#include "device/kernels/causal_attention-inl.h"
#include "device/kernels/column_folds-inl.h"
#include "device/kernels/copies-inl.h"
#include "device/kernels/dequantise_pages-inl.h"
#include "device/kernels/key_sums-inl.h"
#include "device/kernels/projected_norms-inl.h"
#include "device/kernels/query_moments-inl.h"
#include "device/kernels/row_norms-inl.h"
#include "device/kernels/row_steps-inl.h"
#include "device/kernels/step_attention-inl.h"
#include "device/kernels/store_rows-inl.h"
#include "device/kernels/vector_products-inl.h"
#include "device/kernels/window_statistics-inl.h"

namespace winnow::device {

struct KernelQueuer {
  simt::Queue& queue;

  void operator()(const StoreRows& plan) const { queue_store_rows(queue, plan); }
  void operator()(const CausalAttention& plan) const { queue_causal_attention(queue, plan); }
  void operator()(const StepAttention& plan) const { queue_step_attention(queue, plan); }
  void operator()(const WindowStatistics& plan) const { queue_window_statistics(queue, plan); }
  void operator()(const RowNorms& plan) const { queue_row_norms(queue, plan); }
  void operator()(const RowsToBf16& plan) const { queue_rows_to_bf16(queue, plan); }
  void operator()(const NormedToBf16& plan) const { queue_normed_to_bf16(queue, plan); }
  void operator()(const GatedToBf16& plan) const { queue_gated_to_bf16(queue, plan); }
  void operator()(const VectorProduct& plan) const { queue_vector_product(queue, plan); }
  void operator()(const QuantiseRows& plan) const { queue_quantise_rows(queue, plan); }
  void operator()(const RmsNormRows& plan) const { queue_rms_norm_rows(queue, plan); }
  void operator()(const GatedRows& plan) const { queue_gated_rows(queue, plan); }
  void operator()(const ProjectedNorms& plan) const { queue_projected_norms(queue, plan); }
  void operator()(const ColumnFolds& plan) const { queue_column_folds(queue, plan); }
  void operator()(const QueryMoments& plan) const { queue_query_moments(queue, plan); }
  void operator()(const ExpectedScores& plan) const { queue_expected_scores(queue, plan); }
  void operator()(const KeySums& plan) const { queue_key_sums(queue, plan); }
  void operator()(const RowLengths& plan) const { queue_row_lengths(queue, plan); }
  void operator()(const DequantisePages& plan) const { queue_dequantise_pages(queue, plan); }
  void operator()(const Copies& plan) const { queue_copies(queue, plan); }
};

inline void queue_kernel(simt::Queue& queue, const KernelPlan& plan) { std::visit(KernelQueuer{queue}, plan); }

}  // namespace winnow::device
