// Checks the kernels of a prompt (causal attention, window statistics, norms) on a GPU against plain double-precision
// ones on random entries, then times them. Built by nvcc alone:
//   nvcc -O3 -gencode=arch=compute_90a,code=sm_90a -std=c++20 -I src -I include bench/device/prefill_bench.cu
//        -o prefill_bench
// Exits with status 1 if a check fails. With `check` it only checks, in sizes for compute-sanitizer; with `sm90 DIM` it
// only checks and times the kernels for compute capability 9.0, for heads of dimension DIM, and with `sm90 DIM check`
// it only checks them, in small sizes. Medians are of CUDA events; the matrix product of cuBLAS and the copy are timed
// in the same run.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "device/kernels/causal_attention-inl.h"
#include "device/kernels/causal_attention_sm90-inl.h"
#include "device/kernels/row_norms-inl.h"
#include "device/kernels/window_statistics-inl.h"
#include "device_array.h"
#include "timing.h"

namespace {

using namespace winnow;
using namespace winnow::device;
using bench::check;
using bench::DeviceArray;

bool has_failed = false;

void check(cublasStatus_t status, std::source_location at = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("error: line %u: cuBLAS says %d\n", at.line(), static_cast<int>(status));
  std::exit(1);
}

// Returns an about normally distributed number: the sum of four uniform ones from a hash of the index.
__device__ float random_number(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ULL + seed * 0xD1B54A32D192ED03ULL;
  x ^= x >> 30U;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27U;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 31U;
  const float sum = static_cast<float>((x & 0xFFFF) + (x >> 16 & 0xFFFF) + (x >> 32 & 0xFFFF) + (x >> 48)) / 65536.0F;
  return (sum - 2.0F) * 1.7320508F;
}

__device__ float as_stored(float x, bool is_bf16) {
  return is_bf16 ? __bfloat162float(__float2bfloat16(x)) : __half2float(__float2half(x));
}

// The numbers that a check computes with. kRandom: random numbers. kOnes: values are 1, so that only sums of weights
// matter. kZeroQueries: queries are 0, so that all weights are equal. kMarks: numbers are mark_of(entry, column), each
// query row r has a 1 in column r % dim alone and sees only its own entry, so that each result names the entry and
// column that it came from.
enum class Numbers : int { kRandom, kOnes, kZeroQueries, kMarks };

// Returns a number of at most 2,047, which f16 holds exactly.
__host__ __device__ float mark_of(std::size_t entry, int column) {
  return static_cast<float>(entry % 16 * 128 + static_cast<std::size_t>(column) % 128);
}

__device__ float number_of(Numbers numbers, bool is_values, std::size_t i, int dim, std::uint32_t seed) {
  if (numbers == Numbers::kOnes && is_values) return 1;
  if (numbers == Numbers::kMarks) return mark_of(i / dim, static_cast<int>(i % dim));
  return random_number(i, seed);
}

// Writes queries; with is_rounded, of numbers that the entries' type has, so that only the kernel's own rounding shows.
__global__ void fill_queries(float* to, std::size_t n, std::uint32_t seed, bool is_rounded, bool is_bf16,
                             Numbers numbers = Numbers::kRandom, int n_head = 1, int dim = 1) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    float x = random_number(i, seed);
    if (numbers == Numbers::kZeroQueries) x = 0;
    if (numbers == Numbers::kMarks) x = i / dim / n_head % dim == i % dim ? 1 : 0;
    to[i] = is_rounded ? as_stored(x, is_bf16) : x;
  }
}

__global__ void fill_bf16(__nv_bfloat16* to, std::size_t n, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    to[i] = __float2bfloat16(random_number(i, seed));
  }
}

// Writes a head's entries. Slots without an entry keep their bytes.
__global__ void fill_entries(HeadTable table, int dim, bool is_values, bool is_bf16, std::uint32_t seed,
                             Numbers numbers) {
  const std::size_t n = static_cast<std::size_t>(table.n_entries) * dim;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const std::size_t slot = table.first_slot + i / dim;
    const PageRows page = table.pages[slot / kPageEntries];
    std::byte* const to = (is_values ? page.values : page.keys) + (slot % kPageEntries * dim + i % dim) * 2;
    const float x = number_of(numbers, is_values, i, dim, seed);
    if (is_bf16) {
      *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16(x);
    } else {
      *reinterpret_cast<__half*>(to) = __float2half(x);
    }
  }
}

struct Head {
  std::int32_t n_entries;
  std::int32_t first_slot = 0;
};

// The entries of a layer, in pages that lie in no order.
class Entries {
 public:
  Entries(const LayerAttention& layer, const std::vector<Head>& heads, std::uint32_t seed,
          Numbers numbers = Numbers::kRandom)
      : memory_(bytes_of(layer, heads)), tables_(heads.size()) {
    memory_.fill(0xFF);
    std::mt19937 random(seed);
    const std::size_t n_pages = count_pages(heads);
    std::vector<std::size_t> order(n_pages);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const std::size_t key_bytes = std::size_t{kPageEntries} * layer.key_dim * 2, bytes = page_bytes(layer);
    std::vector<PageRows> pages;
    for (const std::size_t page : order) {
      std::byte* const at = memory_.data() + page * bytes;
      pages.push_back({.keys = at, .values = at + key_bytes});
    }
    pages_ = std::make_unique<DeviceArray<PageRows>>(pages);
    std::vector<HeadTable> tables;
    std::size_t first = 0;
    for (const Head& head : heads) {
      tables.push_back({.pages = pages_->data() + first, .first_slot = head.first_slot, .n_entries = head.n_entries});
      first += count_pages({head});
      n_most = std::max(n_most, head.n_entries);
      if (head.n_entries == 0) continue;
      fill_entries<<<1024, 256>>>(tables.back(), layer.key_dim, false, layer.key_type == EntryType::kBF16, seed++,
                                  numbers);
      fill_entries<<<1024, 256>>>(tables.back(), layer.value_dim, true, layer.value_type == EntryType::kBF16, seed++,
                                  numbers);
    }
    check(cudaGetLastError());
    check(cudaMemcpy(tables_.data(), tables.data(), tables.size() * sizeof(HeadTable), cudaMemcpyHostToDevice));
  }
  const HeadTable* tables() const { return tables_.data(); }
  std::int32_t n_most = 0;

 private:
  static std::size_t page_bytes(const LayerAttention& layer) {
    return std::size_t{kPageEntries} * (layer.key_dim + layer.value_dim) * 2;
  }
  static std::size_t count_pages(const std::vector<Head>& heads) {
    std::size_t n = 0;
    for (const Head& head : heads) n += (head.first_slot + head.n_entries + kPageEntries - 1) / kPageEntries;
    return n;
  }
  static std::size_t bytes_of(const LayerAttention& layer, const std::vector<Head>& heads) {
    return count_pages(heads) * page_bytes(layer);
  }

  DeviceArray<std::byte> memory_;
  std::unique_ptr<DeviceArray<PageRows>> pages_;
  DeviceArray<HeadTable> tables_;
};

__device__ double stored(const std::byte* row, int i, EntryType type) {
  if (type == EntryType::kBF16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
  return __half2float(reinterpret_cast<const __half*>(row)[i]);
}

// The input and output of the reference: row x of query head y is computed for the query row first_row + x * step, with
// the fields that CausalAttention and WindowStatistics have.
struct ReferencePlan {
  LayerAttention layer;
  const float* q;  // [n_rows][n_head][key_dim]
  const HeadTable* heads;
  int n_rows, first_row, step, n_checked;
  bool sees_all;
  std::int32_t n_most;
  double* weights;      // [n_head][n_checked][n_most]
  double* out;          // [n_head][n_checked][value_dim], or null
  double* log_sum_exp;  // [n_head][n_checked]
};

__global__ void reference_kernel(ReferencePlan p) {
  const int row = p.first_row + blockIdx.x * p.step, head = blockIdx.y;
  const HeadTable table = p.heads[head / (p.layer.n_head / p.layer.n_kv_head)];
  const std::size_t at = std::size_t{blockIdx.y} * p.n_checked + blockIdx.x;
  double* const weights = p.weights + at * p.n_most;
  const float* const q = p.q + (std::size_t(row) * p.layer.n_head + head) * p.layer.key_dim;
  const int end = table.n_entries + 1 + row - (p.sees_all ? 0 : p.n_rows);
  for (int e = threadIdx.x; e < table.n_entries; e += blockDim.x) {
    const int slot = table.first_slot + e;
    const std::byte* const key = table.pages[slot / kPageEntries].keys + slot % kPageEntries * p.layer.key_dim * 2;
    double dot = 0;
    for (int i = 0; i < p.layer.key_dim; ++i) dot += double{q[i]} * stored(key, i, p.layer.key_type);
    dot *= p.layer.scale;
    if (p.layer.soft_cap != 0) dot = p.layer.soft_cap * ::tanh(dot / p.layer.soft_cap);
    const bool is_seen = e < end && (p.layer.sliding_window == 0 || e >= end - p.layer.sliding_window);
    weights[e] = is_seen ? dot : -HUGE_VAL;
  }
  __syncthreads();
  __shared__ double highs[256], sums[256];
  double high = -HUGE_VAL;
  for (int e = threadIdx.x; e < table.n_entries; e += blockDim.x) high = ::fmax(high, weights[e]);
  highs[threadIdx.x] = high;
  __syncthreads();
  for (int i = 0; i < blockDim.x; ++i) high = ::fmax(high, highs[i]);
  if (p.layer.sink_logits != nullptr) high = ::fmax(high, double{p.layer.sink_logits[head]});
  double sum = 0;
  for (int e = threadIdx.x; e < table.n_entries; e += blockDim.x) sum += ::exp(weights[e] - high);
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = p.layer.sink_logits != nullptr ? ::exp(p.layer.sink_logits[head] - high) : 0;
  for (int i = 0; i < blockDim.x; ++i) sum += sums[i];
  for (int e = threadIdx.x; e < table.n_entries; e += blockDim.x) weights[e] = ::exp(weights[e] - high) / sum;
  if (threadIdx.x == 0) p.log_sum_exp[at] = high + ::log(sum);
  __syncthreads();
  if (p.out == nullptr) return;
  for (int i = threadIdx.x; i < p.layer.value_dim; i += blockDim.x) {
    double x = 0;
    for (int e = 0; e < table.n_entries; ++e) {
      const int slot = table.first_slot + e;
      const std::byte* const value =
          table.pages[slot / kPageEntries].values + slot % kPageEntries * p.layer.value_dim * 2;
      if (weights[e] > 0) x += weights[e] * stored(value, i, p.layer.value_type);
    }
    p.out[at * p.layer.value_dim + i] = x;
  }
}

struct Shape {
  int dim = 128;
  EntryType type = EntryType::kF16;
  int n_head = 8;
  std::vector<Head> heads;
  int n_rows = 0;
  int window = 0;
  float soft_cap = 0;
  bool has_sinks = false;
  Numbers numbers = Numbers::kRandom;

  std::string name() const {
    constexpr const char* kNumbers[] = {"", ", values of 1", ", queries of 0", ", marks"};
    return std::string(type == EntryType::kBF16 ? "bf16" : "f16") + " d " + std::to_string(dim) + ", " +
           std::to_string(n_head) + " heads of " + std::to_string(heads.size()) + " KV heads, " +
           std::to_string(n_rows) + " rows, " + std::to_string(heads.back().n_entries) + " entries" +
           (window > 0 ? ", window " + std::to_string(window) : "") + (soft_cap > 0 ? ", soft cap" : "") +
           (has_sinks ? ", sinks" : "") + kNumbers[static_cast<int>(numbers)];
  }
  LayerAttention layer(const float* sinks) const {
    return {.n_head = n_head,
            .n_kv_head = static_cast<int>(heads.size()),
            .key_dim = dim,
            .value_dim = dim,
            .key_type = type,
            .value_type = type,
            .scale = numbers == Numbers::kMarks ? 1.0F : 1.0F / std::sqrt(static_cast<float>(dim)),
            .soft_cap = soft_cap,
            .sliding_window = window,
            .sink_logits = has_sinks ? sinks : nullptr};
  }
};

std::vector<float> sink_logits(int n_head) {
  std::vector<float> sinks;
  for (int h = 0; h < n_head; ++h) sinks.push_back(static_cast<float>(h % 5) - 1.5F);
  return sinks;
}

void report(const char* what, const Shape& shape, double error, double tolerance) {
  const bool is_fine = error <= tolerance;  // false for NaN
  has_failed |= !is_fine;
  std::printf("%s %s: %s: error %.2g of at most %.2g\n", is_fine ? "ok  " : "FAIL", what, shape.name().c_str(), error,
              tolerance);
}

// Raises `most` to `error` if that is larger or NaN; a NaN stays.
void raise(double& most, double error) { most = error <= most ? most : error; }

simt::Queue queue;

void wait() {
  check(queue.error);
  check(cudaDeviceSynchronize());
}

using Attend = std::function<void(simt::Queue&, const CausalAttention&)>;

// A collector of errors that prints where results are wrong, which shows the part of a kernel that they come from.
class Errors {
 public:
  explicit Errors(double tolerance) : tolerance_(tolerance) {}
  void add(int row, int head, int column, double got, double expected) {
    const double error = std::abs(got - expected);
    raise(most, error);
    ++n_;
    if (error <= tolerance_) return;
    if (n_wrong_++ < 12) first_.push_back({row, head, column, got, expected});
    rows_[row % 128] = true;
    columns_[column % 256] = true;
  }
  // With marks, a number is printed as the entry (modulo 16) and the column that it was made of.
  void print(bool has_marks) const {
    if (n_wrong_ == 0) return;
    std::printf("     %zu of %zu numbers are wrong\n", n_wrong_, n_);
    for (const auto& [row, head, column, got, expected] : first_) {
      std::printf("     row %d head %d column %d: got %.6g, expected %.6g", row, head, column, got, expected);
      if (has_marks) {
        const auto print_mark = [](const char* what, double x) {
          std::printf("%s entry %d column %d", what, static_cast<int>(x) / 128, static_cast<int>(x) % 128);
        };
        print_mark(": got", got);
        print_mark(", expected", expected);
      }
      std::printf("\n");
    }
    const auto print_set = [](const char* what, const bool* set, int n) {
      std::printf("     wrong %s: ", what);
      for (int i = 0; i < n; ++i) std::printf("%c%s", set[i] ? 'x' : '.', i % 16 == 15 ? " " : "");
      std::printf("\n");
    };
    print_set("rows (of 128)", rows_, 128);
    print_set("columns (of 256)", columns_, 256);
  }
  double most = 0;

 private:
  struct Wrong {
    int row, head, column;
    double got, expected;
  };
  double tolerance_;
  std::vector<Wrong> first_;
  bool rows_[128] = {}, columns_[256] = {};
  std::size_t n_ = 0, n_wrong_ = 0;
};

void check_attention(const Shape& shape, int n_checked, const Attend& attend = queue_causal_attention,
                     const std::string& kind = "attention") {
  const DeviceArray<float> sinks(sink_logits(shape.n_head));
  const LayerAttention layer = shape.layer(sinks.data());
  const Entries entries(layer, shape.heads, 5, shape.numbers);
  const std::size_t n_rows = shape.n_rows, n_head = shape.n_head, dim = shape.dim;
  const DeviceArray<float> q(n_rows * n_head * dim), out(n_rows * n_head * dim), log_sum_exp(n_rows * n_head);
  fill_queries<<<1024, 256>>>(q.data(), n_rows * n_head * dim, 99, true, shape.type == EntryType::kBF16, shape.numbers,
                              shape.n_head, shape.dim);
  out.fill(0xFF);
  log_sum_exp.fill(0xFF);
  attend(queue, {.layer = layer,
                 .q = q.data(),
                 .out = out.data(),
                 .log_sum_exp = log_sum_exp.data(),
                 .heads = entries.tables(),
                 .n_rows = shape.n_rows,
                 .n_most = entries.n_most});
  wait();
  const int step = std::max(1, shape.n_rows / n_checked);
  const int n = (shape.n_rows + step - 1) / step;
  const int first_row = shape.n_rows - 1 - (n - 1) * step;
  const DeviceArray<double> weights(n_head * n * entries.n_most), expected_out(n_head * n * dim),
      expected_sum(n_head * n);
  reference_kernel<<<dim3(n, shape.n_head), 256>>>({.layer = layer,
                                                    .q = q.data(),
                                                    .heads = entries.tables(),
                                                    .n_rows = shape.n_rows,
                                                    .first_row = first_row,
                                                    .step = step,
                                                    .n_checked = n,
                                                    .sees_all = false,
                                                    .n_most = entries.n_most,
                                                    .weights = weights.data(),
                                                    .out = expected_out.data(),
                                                    .log_sum_exp = expected_sum.data()});
  check(cudaGetLastError());
  wait();
  const std::vector<float> got = out.read(), got_sum = log_sum_exp.read();
  const std::vector<double> expected = expected_out.read(), expected_sums = expected_sum.read();
  // Tensor cores truncate sums; marks are up to 2,047.
  const double unit = shape.numbers == Numbers::kMarks ? 2048 : 1;
  // After scores of thousands a weight of 1 is rounded to float16, but its sum is not: marks differ by less than a
  // half.
  const double tolerance =
      shape.numbers == Numbers::kMarks ? 0.4 : (shape.type == EntryType::kF16 ? 0x1p-11 : 0x1p-8) * 3 + 1e-4;
  Errors errors(tolerance), sum_errors(3e-5 * unit);
  for (std::size_t h = 0; h < n_head; ++h) {
    for (int i = 0; i < n; ++i) {
      const int row = first_row + i * step;
      const std::size_t at = std::size_t(row) * n_head + h, from = h * n + i;
      sum_errors.add(row, static_cast<int>(h), 0, got_sum[at], expected_sums[from]);
      for (std::size_t c = 0; c < dim; ++c) {
        errors.add(row, static_cast<int>(h), static_cast<int>(c), got[at * dim + c], expected[from * dim + c]);
      }
    }
  }
  report((kind + ", log-sum-exps").c_str(), shape, sum_errors.most, 3e-5 * unit);
  sum_errors.print(shape.numbers == Numbers::kMarks);
  report(kind.c_str(), shape, errors.most, tolerance);
  errors.print(shape.numbers == Numbers::kMarks);
}

// The outputs and the workspace of window statistics.
struct Statistics {
  explicit Statistics(const Shape& shape, int n_most)
      : stride(n_most),
        mean(n(shape)),
        m2(n(shape)),
        max(n(shape)),
        last(n(shape)),
        squares(n(shape)),
        entropy(shape.n_head),
        row_max(std::size_t(shape.n_head) * kMaxStatisticsSlices * shape.n_rows),
        row_sum(std::size_t(shape.n_head) * kMaxStatisticsSlices * shape.n_rows),
        slice_entropy(std::size_t(shape.n_head) * kMaxStatisticsSlices) {
    for (const DeviceArray<float>* columns : {&mean, &m2, &max, &last, &squares}) columns->fill(0);
  }
  std::size_t n(const Shape& shape) const { return std::size_t(shape.n_head) * stride; }
  int stride;
  DeviceArray<float> mean, m2, max, last, squares;
  DeviceArray<double> entropy;
  DeviceArray<float> row_max, row_sum;
  DeviceArray<double> slice_entropy;
};

WindowStatistics statistics_plan(const LayerAttention& layer, const Shape& shape, const Entries& entries,
                                 const float* q, const std::int32_t* n_columns, const Statistics& to) {
  return {.layer = layer,
          .q = q,
          .n_rows = shape.n_rows,
          .sees_all = false,
          .heads = entries.tables(),
          .n_most = entries.n_most,
          .stride = to.stride,
          .n_columns = n_columns,
          .mean = to.mean.data(),
          .m2 = to.m2.data(),
          .max = to.max.data(),
          .last = to.last.data(),
          .squares = to.squares.data(),
          .entropy = to.entropy.data(),
          .row_max = to.row_max.data(),
          .row_sum = to.row_sum.data(),
          .slice_entropy = to.slice_entropy.data()};
}

// The relative tolerance of weights: tensor cores truncate sums at float32 precision, which for scores of 5 is 1e-5.
constexpr double kTolerance = 5e-5;

void check_statistics(const Shape& shape) {
  const DeviceArray<float> sinks(sink_logits(shape.n_head));
  const LayerAttention layer = shape.layer(sinks.data());
  const Entries entries(layer, shape.heads, 5);
  const std::size_t n_rows = shape.n_rows, n_head = shape.n_head, dim = shape.dim, n_most = entries.n_most;
  const DeviceArray<float> q(n_rows * n_head * dim);
  fill_queries<<<1024, 256>>>(q.data(), n_rows * n_head * dim, 99, false, false);
  std::vector<std::int32_t> n_columns;
  for (const Head& head : shape.heads) n_columns.push_back(std::max(0, head.n_entries - shape.n_rows));
  const DeviceArray<std::int32_t> n_columns_there(n_columns);
  const Statistics statistics(shape, entries.n_most);
  const DeviceArray<double> weights(n_head * n_rows * n_most), sums(n_head * n_rows);
  const WindowStatistics plan = statistics_plan(layer, shape, entries, q.data(), n_columns_there.data(), statistics);
  queue_window_statistics(queue, plan);
  wait();
  reference_kernel<<<dim3(shape.n_rows, shape.n_head), 256>>>({.layer = layer,
                                                               .q = q.data(),
                                                               .heads = entries.tables(),
                                                               .n_rows = shape.n_rows,
                                                               .first_row = 0,
                                                               .step = 1,
                                                               .n_checked = shape.n_rows,
                                                               .sees_all = false,
                                                               .n_most = entries.n_most,
                                                               .weights = weights.data(),
                                                               .out = nullptr,
                                                               .log_sum_exp = sums.data()});
  check(cudaGetLastError());
  wait();
  const std::vector<double> a = weights.read(), got_entropy = statistics.entropy.read();
  const std::vector<float> got_mean = statistics.mean.read(), got_m2 = statistics.m2.read(),
                           got_max = statistics.max.read(), got_last = statistics.last.read(),
                           got_squares = statistics.squares.read();
  double error = 0, m2_error = 0, entropy_error = 0;
  const auto relative = [](double got, double expected) { return std::abs(got - expected) / (expected + 1e-25); };
  for (std::size_t h = 0; h < n_head; ++h) {
    double entropy = 0;
    const auto n = static_cast<std::size_t>(n_columns[h / (n_head / shape.heads.size())]);
    for (std::size_t c = 0; c < n; ++c) {
      double sum = 0, most = 0, squares = 0, deviations = 0, last = 0;
      for (std::size_t r = 0; r < n_rows; ++r) {
        last = a[(h * n_rows + r) * n_most + c];
        sum += last;
        squares += last * last;
        most = std::max(most, last);
        if (last > 0) entropy -= last * std::log(last);
      }
      const double mean = sum / static_cast<double>(n_rows);
      for (std::size_t r = 0; r < n_rows; ++r) {
        const double x = a[(h * n_rows + r) * n_most + c] - mean;
        deviations += x * x;
      }
      const std::size_t at = h * n_most + c;
      raise(error, relative(got_mean[at], mean));
      raise(error, relative(got_max[at], most));
      raise(error, relative(got_last[at], last));
      raise(error, relative(got_squares[at], squares) / 2);
      // The error is relative to the effect that an error of the weights has on m2.
      raise(m2_error, std::abs(got_m2[at] - deviations) /
                          (deviations + n_rows * most * std::sqrt(deviations / n_rows) + 1e-6 * most * most + 1e-30));
    }
    raise(entropy_error, relative(got_entropy[h], entropy));
  }
  report("statistics", shape, error, kTolerance);
  report("statistics, m2", shape, m2_error, kTolerance);
  report("statistics, entropy", shape, entropy_error, kTolerance);

  queue_window_statistics(queue, plan);
  wait();
  report("statistics, second call", shape,
         statistics.m2.read() == got_m2 && statistics.entropy.read() == got_entropy ? 0 : 1, 0);
}

void check_norms(const Shape& shape) {
  const LayerAttention layer = shape.layer(nullptr);
  const Entries entries(layer, shape.heads, 5);
  const std::size_t n = shape.heads.size() * entries.n_most;
  const DeviceArray<float> key_l2(n), value_l1(n), value_l2(n);
  queue_row_norms(queue, {.layer = layer,
                          .heads = entries.tables(),
                          .n_most = entries.n_most,
                          .stride = entries.n_most,
                          .key_factors = nullptr,
                          .key_l2 = key_l2.data(),
                          .value_l1 = value_l1.data(),
                          .value_l2 = value_l2.data()});
  wait();
  // The numbers have variance 1, so norms of vectors this long lie close together.
  const std::vector<float> got_key = key_l2.read(), got_l1 = value_l1.read(), got_l2 = value_l2.read();
  double key = 0, l1 = 0, l2 = 0, count = 0;
  for (std::size_t h = 0; h < shape.heads.size(); ++h) {
    for (int e = 0; e < shape.heads[h].n_entries; ++e, ++count) {
      const std::size_t at = h * entries.n_most + e;
      key += double{got_key[at]} * got_key[at] / shape.dim;
      l1 += double{got_l1[at]} / shape.dim;
      l2 += double{got_l2[at]} * got_l2[at] / shape.dim;
    }
  }
  report("norms of keys", shape, std::abs(key / count - 1), 0.02);
  report("norms of values", shape, std::abs(l2 / count - 1), 0.02);
  report("norms of values, l1", shape, std::abs(l1 / count - 0.8), 0.02);
}

// Returns the median time of `work` in milliseconds.
double median_ms(const std::function<void()>& work) {
  const auto checked = [&](int) {
    work();
    check(queue.error);
  };
  return 1e-3 * bench::median_us(nullptr, 7, checked, /*n_warm=*/1);
}

// Returns the TFLOP/s of a matrix product of 8,192 x 8,192 bf16 numbers by cuBLAS, or 0 where there is no cuBLAS.
double product_tflops() {
  constexpr int n = 8192;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW);
  }
  if (library == nullptr) return 0;
  const auto create = reinterpret_cast<decltype(&cublasCreate_v2)>(dlsym(library, "cublasCreate_v2"));
  const auto multiply = reinterpret_cast<cublasStatus_t (*)(
      cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*, const void*, cudaDataType, int,
      const void*, cudaDataType, int, const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t)>(
      dlsym(library, "cublasGemmEx"));
  if (create == nullptr || multiply == nullptr) return 0;
  cublasHandle_t handle;
  check(create(&handle));
  const DeviceArray<__nv_bfloat16> a(std::size_t{n} * n), b(std::size_t{n} * n), c(std::size_t{n} * n);
  fill_bf16<<<1024, 256>>>(a.data(), std::size_t{n} * n, 3);
  fill_bf16<<<1024, 256>>>(b.data(), std::size_t{n} * n, 4);
  check(cudaGetLastError());
  const float one = 1, zero = 0;
  const double ms = median_ms([&] {
    check(multiply(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.data(), CUDA_R_16BF, n, b.data(), CUDA_R_16BF, n,
                   &zero, c.data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  });
  return 2.0 * n * n * n / ms * 1e-9;
}

double copy_gb_per_s() {
  const std::size_t bytes = std::size_t{2} << 30U;
  const DeviceArray<std::byte> from(bytes), to(bytes);
  from.fill(1);
  const double ms = median_ms([&] { check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice)); });
  return 2.0 * static_cast<double>(bytes) / ms * 1e-6;
}

void time_attention(const Shape& shape, const char* kind,
                    const std::function<void(simt::Queue&, const CausalAttention&)>& attend, double product) {
  const LayerAttention layer = shape.layer(nullptr);
  const Entries entries(layer, shape.heads, 5);
  const std::size_t n = std::size_t(shape.n_rows) * shape.n_head;
  const DeviceArray<float> q(n * shape.dim), out(n * shape.dim), log_sum_exp(n);
  fill_queries<<<1024, 256>>>(q.data(), n * shape.dim, 99, false, false);
  check(cudaGetLastError());
  const CausalAttention plan = {.layer = layer,
                                .q = q.data(),
                                .out = out.data(),
                                .log_sum_exp = log_sum_exp.data(),
                                .heads = entries.tables(),
                                .n_rows = shape.n_rows,
                                .n_most = entries.n_most};
  const double ms = median_ms([&] { attend(queue, plan); });
  double seen = 0;
  for (int r = 0; r < shape.n_rows; ++r) {
    const int end = entries.n_most - shape.n_rows + 1 + r;
    seen += shape.window > 0 ? std::min(end, shape.window) : end;
  }
  const double tflops = 4.0 * shape.dim * shape.n_head * seen / ms * 1e-9;
  std::printf("%-66s %-13s %9.3f ms  %6.1f TFLOP/s  %5.1f %% of the product\n", shape.name().c_str(), kind, ms, tflops,
              product > 0 ? tflops / product * 100 : 0.0);
}

void time_statistics(const Shape& shape, double copy) {
  const LayerAttention layer = shape.layer(nullptr);
  const Entries entries(layer, shape.heads, 5);
  const std::size_t n = std::size_t(shape.n_rows) * shape.n_head * shape.dim;
  const DeviceArray<float> q(n);
  fill_queries<<<1024, 256>>>(q.data(), n, 99, false, false);
  check(cudaGetLastError());
  std::vector<std::int32_t> n_columns;
  for (const Head& head : shape.heads) n_columns.push_back(head.n_entries - shape.n_rows);
  const DeviceArray<std::int32_t> n_columns_there(n_columns);
  const Statistics statistics(shape, entries.n_most);
  WindowStatistics plan = statistics_plan(layer, shape, entries, q.data(), n_columns_there.data(), statistics);
  const double keys = double{shape.heads.size() * 2.0} * entries.n_most * shape.dim;
  const double column = double{shape.n_head * 4.0} * entries.n_most;
  const auto print = [&](const char* kind, double ms, double bytes) {
    std::printf("%-66s %-13s %9.3f ms  %6.0f GB/s  %5.1f %% of a copy\n", shape.name().c_str(), kind, ms,
                bytes / ms * 1e-6, bytes / ms * 1e-6 / copy * 100);
  };
  print("statistics", median_ms([&] { queue_window_statistics(queue, plan); }), 2 * keys + 5 * column);
  plan.m2 = plan.max = plan.last = plan.squares = nullptr;
  plan.entropy = nullptr;
  print("mean alone", median_ms([&] { queue_window_statistics(queue, plan); }), 2 * keys + column);
  const DeviceArray<float> norms(std::size_t{3} * shape.heads.size() * entries.n_most);
  const std::size_t n_norms = shape.heads.size() * entries.n_most;
  const RowNorms norms_plan = {.layer = layer,
                               .heads = entries.tables(),
                               .n_most = entries.n_most,
                               .stride = entries.n_most,
                               .key_factors = nullptr,
                               .key_l2 = norms.data(),
                               .value_l1 = norms.data() + n_norms,
                               .value_l2 = norms.data() + 2 * n_norms};
  print("norms", median_ms([&] { queue_row_norms(queue, norms_plan); }),
        2 * keys + 12.0 * static_cast<double>(n_norms));
}

std::vector<Head> equal_heads(int n, int n_entries) { return std::vector<Head>(n, {n_entries}); }

int finish() {
  std::printf("\n%s\n", has_failed ? "FAIL" : "all checks passed");
  return has_failed ? 1 : 0;
}

// A kernel for compute capability 9.0 and its name.
struct Sm90Kernel {
  const char* kind;
  Attend attend;
};

// Returns the kernels for heads of `dim` numbers, the planned one first.
template <class Format>
std::vector<Sm90Kernel> sm90_kernels(int dim) {
  if (dim == 64) {
    return {{"2 x 64 rows", queue_sm90_causal_blocks<Format, 64, 2, 128>},
            {"without turns", queue_sm90_causal_blocks<Format, 64, 2, 128, false>},
            {"3 x 64 rows", queue_sm90_causal_blocks<Format, 64, 3, 128>},
            {"3 x, no turns", queue_sm90_causal_blocks<Format, 64, 3, 128, false>}};
  }
  if (dim == 96) {
    return {{"2 x 64 rows", queue_sm90_causal_blocks<Format, 96, 2, 128>},
            {"without turns", queue_sm90_causal_blocks<Format, 96, 2, 128, false>}};
  }
  if (dim == 128) {
    return {{"2 x 64 rows", queue_sm90_causal_blocks<Format, 128, 2, 128>},
            {"without turns", queue_sm90_causal_blocks<Format, 128, 2, 128, false>}};
  }
  return {{"2 x 64 rows", queue_sm90_causal_blocks<Format, 256, 2, 64>},
          {"without turns", queue_sm90_causal_blocks<Format, 256, 2, 64, false>}};
}

// Checks a kernel. The simplest shapes come first: one tile, two tiles, then many; rows that see one entry each, then
// causal rows, then the other options.
void check_sm90(const Sm90Kernel& kernel, int dim, EntryType type) {
  const auto attend = [&](const Shape& shape, int n_checked) {
    check_attention(shape, n_checked, kernel.attend, std::string(kernel.kind));
  };
  for (const int n : {64, 128, 256, 300, 1000}) {
    attend(
        {.dim = dim, .type = type, .n_head = 2, .heads = {{n}}, .n_rows = n, .window = 1, .numbers = Numbers::kMarks},
        n);
    for (const Numbers numbers : {Numbers::kOnes, Numbers::kZeroQueries, Numbers::kRandom}) {
      attend({.dim = dim, .type = type, .n_head = 2, .heads = {{n}}, .n_rows = n, .numbers = numbers}, n);
    }
  }
  attend({.dim = dim, .type = type, .heads = {{1}}, .n_rows = 1}, 1);
  attend({.dim = dim, .type = type, .heads = {{700, 31}, {20, 9}}, .n_rows = 20}, 20);
  attend({.dim = dim, .type = type, .heads = {{300}, {500, 3}}, .n_rows = 300}, 300);
  if (dim > 64) attend({.dim = dim - 16, .type = type, .heads = {{300}, {500, 3}}, .n_rows = 300}, 300);
  attend({.dim = dim, .type = type, .n_head = 16, .heads = {{1000, 5}}, .n_rows = 600, .window = 100}, 200);
  attend({.dim = dim, .type = type, .heads = {{1000, 5}, {900}}, .n_rows = 600, .window = 300, .soft_cap = 2}, 200);
  attend({.dim = dim, .type = type, .heads = {{1000, 5}, {900}}, .n_rows = 600, .window = 128, .has_sinks = true}, 200);
  attend({.dim = dim, .type = type, .heads = {{2000}, {2500, 1}}, .n_rows = 2000, .has_sinks = true}, 300);
}

int run_sm90(int dim, bool only_checks) {
  has_failed = !has_sm90_causal_attention();
  std::printf("code for compute capability 9.0: %s\n\n", has_failed ? "not there: compile for sm_90a" : "there");
  if (has_failed) return finish();
  const EntryType f16 = EntryType::kF16, bf16 = EntryType::kBF16;
  const std::vector<Sm90Kernel> kernels = sm90_kernels<F16Format>(dim), bf16_kernels = sm90_kernels<BF16Format>(dim);
  for (const Sm90Kernel& kernel : kernels) check_sm90(kernel, dim, f16);
  check_sm90(bf16_kernels[0], dim, bf16);
  if (only_checks) return finish();
  const int n_kv_head = dim == 256 ? 4 : 8, n_head = dim == 256 ? 16 : 32;
  check_attention({.dim = dim, .n_head = n_head, .heads = equal_heads(n_kv_head, 32768), .n_rows = 32768}, 16,
                  kernels[0].attend, kernels[0].kind);
  const double product = product_tflops();
  std::printf("\n%-66s %-13s %9s     %6.1f TFLOP/s\n", "product of 8,192 x 8,192 bf16", "cuBLAS", "", product);
  const auto time_all = [&](const Shape& shape) {
    time_attention(shape, "mma", queue_causal_attention, product);
    for (const Sm90Kernel& kernel : shape.type == bf16 ? bf16_kernels : kernels) {
      time_attention(shape, kernel.kind, kernel.attend, product);
    }
  };
  const auto equal = [&](int n) { return equal_heads(n_kv_head, n); };
  for (const int n : {4096, 32768}) {
    time_all({.dim = dim, .n_head = n_head, .heads = equal(n), .n_rows = n});
  }
  time_all({.dim = dim, .type = bf16, .n_head = n_head, .heads = equal(32768), .n_rows = 32768});
  time_all({.dim = dim, .n_head = n_head, .heads = equal(32768), .n_rows = 32768, .window = 4096});
  time_all({.dim = dim, .n_head = n_head, .heads = equal(32768), .n_rows = 512});
  return finish();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool only_checks = argc > 1 && std::string(argv[argc - 1]) == "check";
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, sm_%d%d, %d multiprocessors\n\n", properties.name, properties.major, properties.minor,
              properties.multiProcessorCount);
  if (argc > 2 && std::string(argv[1]) == "sm90") return run_sm90(std::atoi(argv[2]), only_checks);

  const EntryType f16 = EntryType::kF16, bf16 = EntryType::kBF16;
  for (const EntryType type : {f16, bf16}) {
    for (const int dim : {64, 80, 96, 112, 128, 192, 256}) {
      check_attention({.dim = dim, .type = type, .heads = {{300}, {500, 3}}, .n_rows = 300}, 300);
    }
  }
  check_attention({.heads = {{1}}, .n_rows = 1}, 1);
  check_attention({.heads = {{700, 31}, {20, 9}}, .n_rows = 20}, 20);
  check_attention({.n_head = 16, .heads = {{1000, 5}}, .n_rows = 600, .window = 100}, 200);
  check_attention({.dim = 256, .heads = {{1000, 5}, {900}}, .n_rows = 600, .window = 300, .soft_cap = 2}, 200);
  check_attention({.dim = 64, .heads = {{1000, 5}, {900}}, .n_rows = 600, .window = 128, .has_sinks = true}, 200);
  check_attention({.type = bf16, .heads = {{2000}, {2500, 1}}, .n_rows = 2000, .has_sinks = true}, 300);
  if (!only_checks) check_attention({.n_head = 32, .heads = equal_heads(8, 32768), .n_rows = 32768}, 16);
  for (const EntryType type : {f16, bf16}) {
    for (const int dim : {64, 96, 128, 192, 256}) {
      check_statistics({.dim = dim, .type = type, .heads = {{3000, 7}, {450}}, .n_rows = 32});
    }
  }
  check_statistics({.heads = {{5000}, {100, 3}}, .n_rows = 8, .soft_cap = 3});
  check_statistics({.heads = {{5000}, {100, 3}}, .n_rows = 70, .has_sinks = true});
  if (!only_checks) check_statistics({.n_head = 32, .heads = equal_heads(8, 32768), .n_rows = 32});
  check_norms({.heads = {{5000, 3}, {700}}, .n_rows = 1});
  check_norms({.dim = 80, .type = bf16, .heads = {{5000, 3}, {700}}, .n_rows = 1});
  if (only_checks) return finish();

  const double product = product_tflops(), copy = copy_gb_per_s();
  std::printf("\n%-66s %-13s %9s     %6.1f TFLOP/s\n", "product of 8,192 x 8,192 bf16", "cuBLAS", "", product);
  std::printf("%-66s %-13s %9s     %6.0f GB/s, read and written\n\n", "copy of 2 GiB", "", "", copy);
  const auto planned = [](simt::Queue& to, const CausalAttention& plan) { queue_causal_attention(to, plan); };
  for (const int n_rows : {4096, 32768}) {
    for (const EntryType type : {f16, bf16}) {
      for (const int dim : {64, 96, 128, 256}) {
        const int n_kv_head = dim == 256 ? 4 : 8, n_head = dim == 256 ? 16 : 32;
        const Shape shape = {
            .dim = dim, .type = type, .n_head = n_head, .heads = equal_heads(n_kv_head, n_rows), .n_rows = n_rows};
        time_attention(shape, "as planned", planned, product);
        if (type == bf16) continue;
        // These are other block shapes, timed to choose among them.
        if (dim == 64) {
          time_attention(shape, "scales always", queue_causal_blocks<F16Format, 64, 4, 2, false>, product);
          time_attention(shape, "8 x 16 rows", queue_causal_blocks<F16Format, 64, 8, 1>, product);
          time_attention(shape, "4 x 16 rows", queue_causal_blocks<F16Format, 64, 4, 1>, product);
        } else if (dim == 128) {
          time_attention(shape, "scales always", queue_causal_blocks<F16Format, 128, 4, 2, false>, product);
          time_attention(shape, "8 x 16 rows", queue_causal_blocks<F16Format, 128, 8, 1>, product);
          time_attention(shape, "4 x 16 rows", queue_causal_blocks<F16Format, 128, 4, 1>, product);
        } else if (dim == 256) {
          time_attention(shape, "scales always", queue_causal_blocks<F16Format, 256, 4, 1, false>, product);
          time_attention(shape, "8 x 16 rows", queue_causal_blocks<F16Format, 256, 8, 1>, product);
        }
      }
    }
  }
  time_attention({.n_head = 32, .heads = equal_heads(8, 32768), .n_rows = 32768, .window = 4096}, "as planned", planned,
                 product);
  time_attention({.dim = 256, .n_head = 16, .heads = equal_heads(8, 32768), .n_rows = 32768, .soft_cap = 50},
                 "as planned", planned, product);
  time_attention({.n_head = 32, .heads = equal_heads(8, 32768), .n_rows = 512}, "as planned", planned, product);
  for (const int n_entries : {4096, 32768, 131072}) {
    time_statistics({.n_head = 32, .heads = equal_heads(8, n_entries), .n_rows = 32}, copy);
  }
  return finish();
}
