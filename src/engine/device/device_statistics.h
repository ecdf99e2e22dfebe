// Statistics of entries that lie in a device's memory, by its own kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cache/entry_copies.h"
#include "device/device.h"
#include "engine/device/dequantised_pages.h"
#include "engine/executor.h"
#include "eviction/evidence/entry_statistics.h"

struct ggml_tensor;

namespace winnow {

// What statistics work with, kept from layer to layer.
struct StatisticsMemory {
  device::Buffer inputs, outputs, workspace, rows, w_o;
  std::vector<std::byte> uploaded, downloaded;

  std::size_t bytes() const {
    return inputs.bytes() + outputs.bytes() + workspace.bytes() + rows.bytes() + w_o.bytes();
  }
};

// The layer whose entries are measured, and what its executor lends for that.
struct MeasuredLayer {
  device::Device& device;
  StatisticsMemory& memory;
  device::LayerAttention attention;
  // Returns W_O [n_embd][n_head * value_dim] in the device's memory, to which it may be copied only then.
  std::function<const ggml_tensor*()> w_o;
  int n_embd;
  ParallelFor parallel_for;
  std::function<std::vector<float>()> output_projection;  // makes LayerView::w_o, on the calling thread
};

// Measures one layer's entries. What both refer to must outlive it.
class DeviceStatistics final : public EntryStatistics {
 public:
  DeviceStatistics(MeasuredLayer layer, LayerEntries entries);

  std::optional<WindowStatistics> window(const StatisticsRows& rows, unsigned columns,
                                         std::span<const std::int32_t> n_columns) override;
  std::optional<std::vector<std::vector<float>>> squares(const StatisticsRows& rows,
                                                         std::span<const std::int32_t> n_columns) override;
  std::optional<std::vector<std::vector<float>>> fold(kernels::ColumnFold fold, const StatisticsRows& rows,
                                                      const float* log_sum_exp,
                                                      std::span<const kernels::EntryRange> ranges) override;
  std::vector<std::vector<double>> expected_scores(std::span<const double> mean,
                                                   std::span<const double> covariance) override;
  std::vector<std::vector<float>> norms(EntryNorm norm) override;
  std::optional<std::vector<std::vector<float>>> projected_value_norms() override;
  std::vector<std::vector<float>> mean_key_cosines() override;
  std::vector<std::vector<double>> value_forms(std::vector<float> matrices) override;
  RowAttention attend(const StatisticsRows& rows, bool wants_out) override;
  const std::vector<KeyOrigin>& origins() override;
  EntryRows rows(int head, std::span<const std::int32_t> entries) override;
  const float* output_projection() override;
  const float* kept_queries(std::int32_t first_row, int n_rows) override;
  std::span<const ReconstructionPass> copied_passes(std::span<const ReconstructionPass> passes) override;
  std::span<const kernels::HeadEntries> host_heads() override;

 private:
  struct Inputs;
  // shows_values: kernels get values where they look for keys
  Inputs upload(const float* q, int n_rows, std::span<const std::int32_t> n_columns, bool shows_values = false);
  // Returns scale m'k + scale^2 k'M k / 2 of every key k, for each query head of `layer`: [n_kv_head][n_group *
  // n_entries].
  //   moments: m [n_head][key_dim], then M [n_head][key_dim][key_dim]
  std::vector<std::vector<double>> quadratic_forms(const device::LayerAttention& layer, const Inputs& inputs,
                                                   std::span<const float> moments);
  WindowStatistics measure(const StatisticsRows& rows, unsigned columns, std::vector<std::vector<float>>* squares,
                           std::span<const std::int32_t> n_columns);
  // The sums of each head's stored keys, [n_kv_head][key_dim], and the lengths that they were divided by, if they were:
  // those of the model's own keys, [n_kv_head][n_most_].
  struct SummedKeys {
    std::vector<std::vector<double>> sums;
    std::vector<float> lengths;
  };
  SummedKeys sum_keys(std::int32_t first, bool by_direction);
  // Copies columns [n_head][stride] of what was downloaded.
  void take_columns(std::size_t from, std::size_t stride, std::span<const std::int32_t> n_columns,
                    std::vector<std::vector<float>>& to) const;
  // Downloads a number for each entry, n_most_ apart for each head, from the outputs.
  std::vector<std::vector<float>> download_of_entries();
  void copy_rows();
  int n_kv_head() const { return layer_.attention.n_kv_head; }
  int n_group() const { return layer_.attention.n_head / layer_.attention.n_kv_head; }

  const MeasuredLayer layer_;
  LayerEntries entries_;
  std::int32_t n_most_ = 0;  // entries of any head
  std::size_t n_pages_ = 0;  // of all heads

  const float* kept(std::int32_t first_row) const;
  void check_sums(std::span<const float> log_sum_exp) const;

  std::vector<float> key_factors_;  // [n_kv_head][key_dim], which make a stored key the model's own; or empty
  std::vector<float> w_o_;
  std::vector<KeyOrigin> origins_;                      // [n_kv_head], once asked for
  std::map<std::int32_t, std::vector<float>> queries_;  // that were kept, by first row
  std::vector<ReconstructionPass> passes_;
  DequantisedPages dequantised_;
  bool is_dequantised_ = false;  // entries_.rows has no page of codes left
  std::once_flag copies_;
  std::vector<EntryCopies> copied_;               // [n_kv_head]
  std::vector<kernels::HeadEntries> host_heads_;  // [n_kv_head]
};

}  // namespace winnow
