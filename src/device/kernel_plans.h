// The arguments of winnow's own device kernels, as plain structs: Device queues them, and device/kernels implements
// them. All pointers are addresses in the device's memory; sizes count numbers unless they say bytes. kName names the
// kernel in errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "cache/page_rows.h"
#include "winnow/entry_type.h"

namespace winnow::device {

using winnow::PageRows;

// The stored entries of one KV head. Entry e is in slot (first_slot + e) % kPageEntries of page
// (first_slot + e) / kPageEntries. A prompt's staging buffer is shown as pages, too. Only StepAttention takes pages of
// codes; for other kernels DequantisePages turns them into pages of floats.
struct alignas(16) HeadTable {
  const PageRows* pages;
  std::int32_t first_slot;
  std::int32_t n_entries;
  const std::byte* origin = nullptr;  // [key_dim] float16, to be added to keys that are codes; null: none
};

// The dimensions and parameters of a layer's attention.
struct LayerAttention {
  int n_head;
  int n_kv_head;
  int key_dim;         // a multiple of 16, at most 256
  int value_dim;       // a multiple of 16, at most 256
  EntryType key_type;  // kF16 or kBF16
  EntryType value_type;
  float scale;
  float soft_cap;               // 0: none
  std::int32_t sliding_window;  // a row sees its own entry and the sliding_window - 1 entries before it; 0: all
  const float* sink_logits;     // [n_head] learned, or null
};

// Writes the rows of keys and values of a batch to the last n_rows entries of every head.
struct StoreRows {
  static constexpr const char* kName = "storing rows";
  LayerAttention layer;
  const float* k;          // [n_rows][n_kv_head][key_dim], rotated
  const float* v;          // [n_rows][n_kv_head][value_dim]
  const HeadTable* heads;  // [n_kv_head], which include the rows' entries
  int n_rows;
};

// Attention of many rows of one sequence. Row r sees the first n_entries - n_rows + 1 + r entries of a head, except
// those that the window hides; with sees_all, it sees all entries of a layer without a window.
struct CausalAttention {
  static constexpr const char* kName = "attention of a prompt";
  LayerAttention layer;
  const float* q;          // [n_rows][n_head][key_dim], rotated
  float* out;              // [n_rows][n_head][value_dim]
  float* log_sum_exp;      // [n_rows][n_head] natural log of the softmax denominators, sinks included; or null
  const HeadTable* heads;  // [n_kv_head], which include the rows' own entries, already stored
  int n_rows;
  std::int32_t n_most;  // the most entries of any head
  bool sees_all = false;
};

// The largest number of slices into which a step cuts one head's entries.
inline constexpr int kMaxStepSlices = 64;

// Attention of one new row for each of several sequences, which have different lengths. The row's key and value are
// stored first, as the last entry of its head.
struct StepAttention {
  static constexpr const char* kName = "attention of a step";
  LayerAttention layer;
  const float* q;          // [n_sequences][n_head][key_dim], rotated
  const float* k;          // [n_sequences][n_kv_head][key_dim], rotated; null: the layer stores no entries
  const float* v;          // [n_sequences][n_kv_head][value_dim]
  float* out;              // [n_sequences][n_head][value_dim]
  const HeadTable* heads;  // [n_sequences][n_kv_head], which include the step's own entry; read when the kernel runs
  int n_sequences;
  bool has_codes = false;  // the heads may have pages of codes; other pages are then float16
  // Workspace, shared by all layers of a step: see step_workspace_bytes.
  std::byte* workspace;
};

// Returns the bytes of a step's workspace: a counter for each query head, which must be zero before the first use and
// is zero again afterwards, then partial results.
constexpr std::size_t step_workspace_bytes(int n_sequences, int n_head, int value_dim) {
  const std::size_t n_rows = static_cast<std::size_t>(n_sequences) * static_cast<std::size_t>(n_head);
  const std::size_t counters = (n_rows * sizeof(std::int32_t) + 255) / 256 * 256;
  return counters + n_rows * kMaxStepSlices * (static_cast<std::size_t>(value_dim) + 2) * sizeof(float);
}

// The largest number of slices into which a head's entries are cut for the statistics below.
inline constexpr int kMaxStatisticsSlices = 32;

// Reductions of window rows' attention over a head's first n_columns entries, as in kernels::window_statistics. The
// n_rows rows are the last ones of the sequence, or all of them see all entries.
struct WindowStatistics {
  static constexpr const char* kName = "statistics of a window";
  LayerAttention layer;
  const float* q;  // [n_rows][n_head][key_dim], rotated
  int n_rows;
  bool sees_all;                  // every row sees all entries; else row r sees those up to its own
  const HeadTable* heads;         // [n_kv_head]
  std::int32_t n_most;            // the most entries of any head
  std::int32_t stride;            // of the columns below, per query head
  const std::int32_t* n_columns;  // [n_kv_head]
  // [n_head][stride] each, or null.
  float* mean;
  float* m2;  // sum of squared deviations from the mean
  float* max;
  float* last;
  float* squares;   // sum of squares over the rows
  double* entropy;  // [n_head], over the columns and rows: -sum p ln p
  // Workspace: the rows' maximum scores, the sums of the exponentials of the scores minus these, and each slice's part
  // of the entropy. The last may be null if `entropy` is.
  float* row_max;         // [n_head][kMaxStatisticsSlices][n_rows]
  float* row_sum;         // [n_head][kMaxStatisticsSlices][n_rows]
  double* slice_entropy;  // [n_head][kMaxStatisticsSlices]
};

// Norms of stored rows.
struct RowNorms {
  static constexpr const char* kName = "norms of rows";
  LayerAttention layer;
  const HeadTable* heads;  // [n_kv_head]
  std::int32_t n_most;
  std::int32_t stride;       // of the outputs, per KV head
  const float* key_factors;  // [n_kv_head][key_dim], of the keys before their norms; or null
  // [n_kv_head][stride] each, or null.
  float* key_l2;
  float* value_l1;
  float* value_l2;
};

// Converts rows to bfloat16 for products. All addresses are 16-byte aligned, and rows have a multiple of 8 numbers.
struct RowsToBf16 {
  static constexpr const char* kName = "converting rows";
  const float* from;
  void* to;
  std::int64_t n;  // numbers of all rows
};

// Normalises rows by their root mean square.
struct NormedToBf16 {
  static constexpr const char* kName = "norms of a layer's rows";
  const float* from;    // [n_rows][n]
  const float* weight;  // [n], or null
  void* to;             // [n_rows][n]
  float eps;            // added to the mean square
  int n;
  int n_rows;
};

// Computes activation(gate) * up.
struct GatedToBf16 {
  static constexpr const char* kName = "gating rows";
  const float* gate;
  const float* up;
  void* to;
  std::int64_t n;  // numbers of all rows
  bool is_gelu;    // the activation is GELU, by tanh; else SiLU
};

// A product of bfloat16 matrices with float32 sums: y = W x, or y += W x.
struct Product {
  const void* weight;  // [n_out][n_in] bfloat16
  const void* x;       // [n_rows][n_in] bfloat16
  float* y;            // [n_rows][n_out]
  int n_in;
  int n_out;
  int n_rows;
  bool adds;
};

// Rows of 8-bit numbers, with a scale for every 32 of them: a number is scale * byte.
struct EightBitRows {
  std::int8_t* numbers;  // [n_rows][n], 16-byte aligned
  float* scales;         // [n_rows][n / 32][2], 16-byte aligned: the scale, and the scale times the sum of the 32 bytes
};

// Return the bytes of the rows' numbers, and of these with the scales that may follow them; n is a multiple of 32.
constexpr std::size_t eight_bit_number_bytes(int n_rows, int n) {
  return static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(n);
}
constexpr std::size_t eight_bit_bytes(int n_rows, int n) {
  return eight_bit_number_bytes(n_rows, n) / 32 * (32 + 2 * sizeof(float));
}

// The types of weights that VectorProduct takes, by ggml's numbers.
enum class WeightType : std::int32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

constexpr bool is_weight_type(int ggml_type) {
  switch (static_cast<WeightType>(ggml_type)) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ8_0:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K:
    case WeightType::kBF16:
      return true;
  }
  return false;
}

// Weights of these types are multiplied with float32 rows, the others with rows in 8 bits.
constexpr bool is_float_type(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16;
}

inline constexpr int kMaxProductRows = 8;
inline constexpr int kMaxProductParts = 3;

// y = W x + bias + add.
struct ProductPart {
  // [n_out][n_in] in ggml's blocks, at a 16-byte aligned address; the bytes up to the next multiple of 16 must be
  // readable.
  const void* weight;
  WeightType type;
  int n_out;
  float* y;           // [n_rows][n_out]
  const float* bias;  // [n_out] or null
  const float* add;   // [n_rows][n_out], may be y; or null
};

// Products of a few rows with up to three weights. A row's result has the same bits whichever other rows there are.
struct VectorProduct {
  static constexpr const char* kName = "products of rows";
  ProductPart parts[kMaxProductParts];
  int n_parts;
  int n_in;  // whole blocks of every type, a multiple of 32
  int n_rows;
  // Set as the types of the weights need; the other is null.
  EightBitRows x;
  const float* x_float;  // [n_rows][n_in], 16-byte aligned
};

// Quantises rows to 8 bits.
struct QuantiseRows {
  static constexpr const char* kName = "rows to 8 bits";
  const float* x;  // [n_rows][n], 16-byte aligned
  EightBitRows to;
  int n_rows;
  int n;  // a multiple of 32
};

// The largest row, in numbers, that RmsNormRows takes.
inline constexpr int kMaxNormNumbers = 16384;

// Scales rows to a root mean square of 1 and multiplies them by a weight.
struct RmsNormRows {
  static constexpr const char* kName = "norms of a step";
  float* x;             // [n_rows][n], 16-byte aligned like all rows here
  const float* add;     // [n_rows][n], added to x in place first; or null
  const float* weight;  // [n] or null
  float eps;
  float* out;          // [n_rows][n] or null
  EightBitRows eight;  // or nulls
  int n_rows;
  int n;  // a multiple of 32, at most kMaxNormNumbers
};

enum class GateActivation : std::int32_t { kSilu, kGelu };

// Computes activation(gate) * up.
struct GatedRows {
  static constexpr const char* kName = "gates of a step";
  const float* gate;  // [n_rows][n], 16-byte aligned like all rows here
  const float* up;    // [n_rows][n]
  GateActivation activation;
  float* out;          // [n_rows][n], may be gate or up; or null
  EightBitRows eight;  // or nulls
  int n_rows;
  int n;  // a multiple of 32
};

// Norms of stored values after the output projection: for each entry, the mean of || v W_O[head] ||_1 over the query
// heads of its group.
struct ProjectedNorms {
  static constexpr const char* kName = "norms of projected values";
  LayerAttention layer;
  const HeadTable* heads;  // [n_kv_head]
  std::int32_t n_most;
  std::int32_t stride;  // of the norms, per KV head
  const void* w_o;      // [n_embd][n_head * value_dim] bfloat16, 16-byte aligned
  int n_embd;
  float* norms;  // [n_kv_head][stride]
};

// The number of query rows that pass through shared memory together in the folds below.
inline constexpr int kFoldStrip = 32;
constexpr std::int64_t fold_padded_rows(int n_rows) {
  return (std::int64_t{n_rows} + kFoldStrip - 1) / kFoldStrip * kFoldStrip;
}

// Attention weights exp(score - log-sum-exp) of rows on a range of a head's entries, folded over the rows. The rows are
// followed by the sequence's last n_later rows, or all of them see all entries. Only for layers without a sliding
// window.
struct ColumnFolds {
  static constexpr const char* kName = "columns of attention";
  LayerAttention layer;
  const float* q;            // [n_rows][n_head][key_dim], rotated
  const float* log_sum_exp;  // [n_rows][n_head], natural
  int n_rows;
  int n_later;
  bool sees_all;
  bool is_max;                        // the maximum of the weights; else their sum
  bool adds;                          // folds into what the columns hold of other rows; else they are overwritten
  const HeadTable* heads;             // [n_kv_head]
  std::int32_t stride;                // of the columns, per query head; at least the most columns of any head
  const std::int32_t* first_columns;  // [n_kv_head] the first entry of the range
  const std::int32_t* n_columns;      // [n_kv_head]
  float* columns;                     // [n_head][stride]
  std::byte* workspace;               // fold_workspace_bytes
};

// Returns the bytes of the workspace of a fold of n_rows rows, which holds at most two 16-bit terms of each query
// number.
constexpr std::size_t fold_workspace_bytes(int n_rows, int n_head, int key_dim) {
  const std::size_t width = key_dim <= 64 ? 64 : key_dim <= 128 ? 128 : 256;
  return static_cast<std::size_t>(fold_padded_rows(n_rows)) * static_cast<std::size_t>(n_head) *
         (2 * width * 2 + sizeof(float));
}

// Sums of queries before rotation, and of their outer products, over the rows.
struct QueryMoments {
  static constexpr const char* kName = "moments of queries";
  const float* q;  // [n_rows][n_head][key_dim]
  int n_rows;
  int n_head;
  int key_dim;
  bool adds;      // to the sums of other rows; else they are overwritten
  double* sum;    // [n_head][key_dim]
  double* outer;  // [n_head][key_dim][key_dim]
};

// The log of the expected exponential of the scores of each stored key k, for queries with these moments: scale mean'k
// + scale^2 k'covariance k / 2.
struct ExpectedScores {
  static constexpr const char* kName = "expected scores";
  LayerAttention layer;
  const HeadTable* heads;  // [n_kv_head]
  std::int32_t n_most;
  std::int32_t stride;      // of the scores, per query head
  const float* mean;        // [n_head][key_dim]
  const float* covariance;  // [n_head][key_dim][key_dim], symmetric
  float* scores;            // [n_head][stride]
};

// Sums of the keys of each head's entries from `first` on, divided by their lengths if these are given, in slices of
// kKeySumEntries.
inline constexpr int kKeySumEntries = 1024;
struct KeySums {
  static constexpr const char* kName = "sums of keys";
  LayerAttention layer;
  const HeadTable* heads;  // [n_kv_head]
  std::int32_t n_most;
  std::int32_t first;
  float* sums;                     // [n_kv_head][key_sum_slices(n_most)][key_dim]
  const float* lengths = nullptr;  // [n_kv_head][n_most]; a key of length 0 is left out
};

constexpr int key_sum_slices(std::int32_t n_most) { return (n_most + kKeySumEntries - 1) / kKeySumEntries; }

// L2 norms of rows.
struct RowLengths {
  static constexpr const char* kName = "lengths of rows";
  const float* rows;  // [n_rows][n]
  float* lengths;     // [n_rows]
  int n;              // a multiple of 4
  int n_rows;
};

// A page of codes, and where its rows go. Rows that are no codes stay where they are.
struct CodedPage {
  PageRows from;
  PageRows to;              // [kPageEntries] float16 rows each
  const std::byte* origin;  // as in HeadTable
};

// Dequantises pages of codes to float16.
struct DequantisePages {
  static constexpr const char* kName = "dequantising pages";
  const CodedPage* pages;  // [n_pages]
  int n_pages;
  int key_dim;
  int value_dim;
};

// Copies of bytes, carried out in any order: no target may overlap a source.
struct Copies {
  static constexpr const char* kName = "copying entries";
  const void* list;  // [n] ByteCopy, in the device's memory
  int n;
};

using KernelPlan =
    std::variant<StoreRows, CausalAttention, StepAttention, WindowStatistics, RowNorms, RowsToBf16, NormedToBf16,
                 GatedToBf16, VectorProduct, QuantiseRows, RmsNormRows, GatedRows, ProjectedNorms, ColumnFolds,
                 QueryMoments, ExpectedScores, KeySums, RowLengths, DequantisePages, Copies>;

inline const char* kernel_name(const KernelPlan& plan) {
  return std::visit([]<class Plan>(const Plan&) { return Plan::kName; }, plan);
}

}  // namespace winnow::device
