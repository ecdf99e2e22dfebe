// Benchmarks of the kernels. WINNOW_ISA forces an instruction set, as in the tool. Each row reports a kernel's rate
// (GFLOP/s of useful multiply-adds, or GB/s of stored rows read) and its share of this machine's limit, measured at the
// start of the same run.
#include <benchmark/benchmark.h>
#include <hwy/aligned_allocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/bf16_attention.h"
#include "kernels/entries/rows.h"
#include "kernels/products/quantised_product.h"
#include "kernels/simd/isa.h"
#include "kernels/statistics/projected_norms.h"
#include "kernels/statistics/query_moments.h"
#include "kernels/statistics/window_statistics.h"
#include "machine_limits.h"

namespace winnow::bench {
namespace {

using namespace winnow::kernels;

constexpr int kPageEntries = 32;
constexpr std::size_t kColdBytes = std::size_t{1} << 29;  // more than a last-level cache holds

struct Limits {
  double gflops;        // of float32
  double bf16_gflops;   // of bfloat16 by the unit in use, 0 if there is none
  double int8_gops;     // of 8-bit integers by the instructions in use, 0 if there are none
  double read_gbps[3];  // by number of threads
} limits;

AttentionShape make_shape(int n_group, int head_dim, EntryType type) {
  return {.n_group = n_group,
          .key_dim = head_dim,
          .value_dim = head_dim,
          .key_type = type,
          .value_type = type,
          .spec = {.scale = 0.1F}};
}

// Memory mapped from the system in small pages (4 KiB) or, if `huge`, in large pages where the system has them. The
// page size decides how often an address has to be looked up when rows are scattered over much memory.
class SystemMemory {
 public:
  SystemMemory(std::size_t bytes, bool huge) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(data);
#ifdef MADV_HUGEPAGE
    if (huge) madvise(data, bytes, MADV_HUGEPAGE);
#endif
    std::fill_n(data_, bytes, std::byte{1});
  }
  ~SystemMemory() { munmap(data_, bytes_); }
  SystemMemory(const SystemMemory&) = delete;
  SystemMemory& operator=(const SystemMemory&) = delete;
  std::byte* get() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

// KV heads in pages that lie in memory in random order, as they do after eviction has run for a while.
struct PagedHeads {
  PagedHeads(const AttentionShape& shape, int n_heads, int n_entries, bool huge = false) {
    const std::size_t row = row_bytes(shape.key_type, shape.key_dim);
    const std::size_t page = 2 * kPageEntries * row;
    const int pages_per_head = (n_entries + kPageEntries - 1) / kPageEntries;
    const auto n_pages = static_cast<std::size_t>(n_heads * pages_per_head);
    memory = std::make_unique<SystemMemory>(n_pages * page, huge);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<std::size_t>(shape.key_dim));
    // Only the first rows are encoded and the others copy them, since encoding every row would take longer than the
    // benchmark.
    constexpr std::size_t kOwnRows = 509;
    for (std::size_t i = 0; i < n_pages * page / row; ++i) {
      std::byte* to = memory->get() + i * row;
      if (i >= kOwnRows) {
        std::copy_n(memory->get() + i % kOwnRows * row, row, to);
        continue;
      }
      for (float& x : numbers) x = normal(random);
      store_row(shape.key_type, numbers.data(), to, shape.key_dim);
    }
    std::vector<std::size_t> order(n_pages);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    positions.resize(static_cast<std::size_t>(n_entries));
    std::iota(positions.begin(), positions.end(), 0);
    runs.resize(static_cast<std::size_t>(n_heads));
    std::size_t next = 0;
    for (auto& head : runs) {
      for (int first = 0; first < n_entries; first += kPageEntries) {
        const std::byte* keys = memory->get() + order[next++] * page;
        head.push_back({keys, keys + kPageEntries * row, positions.data() + first,
                        std::min(kPageEntries, n_entries - first), shape.key_type, shape.value_type});
      }
      entries.push_back({head, n_entries});
    }
  }

  std::unique_ptr<SystemMemory> memory;
  std::vector<std::int32_t> positions;
  std::vector<std::vector<EntryRun>> runs;
  std::vector<HeadEntries> entries;
};

std::vector<float> random_numbers(std::size_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

// Counts the rate and its share of `peak`.
void count_flops(benchmark::State& state, double flops_per_iteration, double peak = limits.gflops) {
  const auto n = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(flops_per_iteration * n / 1e9, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(flops_per_iteration * n / 1e9 / peak, benchmark::Counter::kIsRate);
}

// Measures one block of rows at the end of a prompt of n_entries.
void causal(benchmark::State& state, int n_group, int head_dim, int n_entries, EntryType type) {
  const AttentionShape shape = make_shape(n_group, head_dim, type);
  const PagedHeads heads(shape, 1, n_entries);
  const std::vector<float> q = random_numbers(static_cast<std::size_t>(kCausalBlockRows * n_group * head_dim));
  std::vector<float> out(q.size());
  const auto scratch = hwy::AllocateAligned<std::byte>(causal_attention_scratch_bytes(shape));
  const int n_visible = n_entries - kCausalBlockRows + 1;
  const QueryRows rows{q.data(), n_group * head_dim, kCausalBlockRows, n_visible, n_visible - 1};
  for (auto _ : state) {
    causal_attention(shape, heads.entries[0], rows, {out.data(), n_group * head_dim, nullptr},
                     {scratch.get(), causal_attention_scratch_bytes(shape)});
    benchmark::DoNotOptimize(out.data());
  }
  const double seen = kCausalBlockRows * (n_visible + (kCausalBlockRows - 1) / 2.0);
  count_flops(state, 4.0 * seen * n_group * head_dim,
              prefers_bf16_attention(shape) ? limits.bf16_gflops : limits.gflops);
}

// Measures decoding over many heads in turn, each read from memory.
void decode(benchmark::State& state, int n_group, int head_dim, int n_entries, EntryType type, int n_threads,
            std::size_t bytes, bool huge) {
  const AttentionShape shape = make_shape(n_group, head_dim, type);
  const std::size_t head_bytes = 2 * row_bytes(type, head_dim) * static_cast<std::size_t>(n_entries);
  const int n_heads = std::max(n_threads, static_cast<int>(bytes / head_bytes));
  const PagedHeads heads(shape, n_heads, n_entries, huge);
  const std::vector<float> q = random_numbers(static_cast<std::size_t>(n_group * head_dim));
  const auto work = [&](int thread) {
    GroupSoftmaxes states(1, n_group, head_dim);
    const std::size_t scratch_bytes = decode_attention_scratch_bytes(shape);
    const auto scratch = hwy::AllocateAligned<std::byte>(scratch_bytes);
    for (int h = thread; h < n_heads; h += n_threads) {
      decode_attention(shape,
                       {q.data(), heads.entries[static_cast<std::size_t>(h)], 0, n_entries, n_entries, n_entries},
                       states.at(0, n_group, head_dim), {scratch.get(), scratch_bytes});
      benchmark::DoNotOptimize(states.at(0, n_group, head_dim).values);
    }
  };
  for (auto _ : state) {
    std::vector<std::jthread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(work, t);
    work(0);
  }
  const double gbytes = static_cast<double>(head_bytes) * n_heads * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GB/s"] = benchmark::Counter(gbytes, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(gbytes / limits.read_gbps[n_threads], benchmark::Counter::kIsRate);
}

void window(benchmark::State& state, int n_group, int head_dim, int n_rows, int n_entries, bool mean_only) {
  const AttentionShape shape = make_shape(n_group, head_dim, EntryType::kF16);
  const PagedHeads heads(shape, 1, n_entries);
  const std::vector<float> q = random_numbers(static_cast<std::size_t>(n_rows * n_group * head_dim));
  const auto n = static_cast<std::size_t>(n_group * n_entries);
  std::vector<float> mean(n), m2(n), max(n), last(n);
  std::vector<double> entropy(static_cast<std::size_t>(n_group));
  const std::size_t scratch_bytes = window_statistics_scratch_bytes(shape, n_rows);
  const auto scratch = hwy::AllocateAligned<std::byte>(scratch_bytes);
  const int n_visible = n_entries - n_rows + 1;
  const QueryRows rows{q.data(), n_group * head_dim, n_rows, n_visible, n_visible - 1};
  ColumnStatistics out{n_entries - n_rows, mean.data(), nullptr, nullptr, nullptr, nullptr};
  if (!mean_only) out = {n_entries - n_rows, mean.data(), m2.data(), max.data(), last.data(), entropy.data()};
  for (auto _ : state) {
    window_statistics(shape, heads.entries[0], rows, out, {scratch.get(), scratch_bytes});
    benchmark::DoNotOptimize(mean.data());
  }
  count_flops(state, 2.0 * 2.0 * n_rows * n_entries * n_group * head_dim);  // the scores, in each of the two passes
}

// Measures a fold of one block of rows at the end of a prompt of n_entries, as H2O (sums) and KVzip (maxima) use it.
void fold(benchmark::State& state, ColumnFold fold, int n_group, int head_dim, int n_entries, EntryType type) {
  constexpr int kRows = 256;
  const AttentionShape shape = make_shape(n_group, head_dim, type);
  const PagedHeads heads(shape, 1, n_entries);
  const std::vector<float> q = random_numbers(static_cast<std::size_t>(kRows * n_group * head_dim));
  const std::vector<float> log_sum_exp(static_cast<std::size_t>(kRows * n_group), 10.0F);
  std::vector<float> columns(static_cast<std::size_t>(n_group * n_entries));
  const std::size_t scratch_bytes = window_statistics_scratch_bytes(shape, kRows);
  const auto scratch = hwy::AllocateAligned<std::byte>(scratch_bytes);
  const int n_visible = n_entries - kRows + 1;
  const QueryRows rows{q.data(), n_group * head_dim, kRows, n_visible, n_visible - 1};
  for (auto _ : state) {
    fold_columns(fold, shape, heads.entries[0], rows, log_sum_exp.data(), {0, n_entries}, columns.data(),
                 {scratch.get(), scratch_bytes});
    benchmark::DoNotOptimize(columns.data());
  }
  count_flops(state, 2.0 * kRows * (n_visible + (kRows - 1) / 2.0) * n_group * head_dim,
              prefers_bf16_attention(shape) ? limits.bf16_gflops : limits.gflops);
}

void moments(benchmark::State& state, int head_dim, int n_rows) {
  const std::vector<float> q = random_numbers(static_cast<std::size_t>(n_rows * head_dim));
  std::vector<double> sum(static_cast<std::size_t>(head_dim)), outer(sum.size() * sum.size());
  for (auto _ : state) {
    add_query_moments(q.data(), head_dim, n_rows, head_dim, sum, outer);
    benchmark::DoNotOptimize(outer.data());
  }
  count_flops(state, 2.0 * n_rows * head_dim * head_dim);
}

// Measures products with weights of one format: with more than 16 rows by operations, otherwise by bytes of weights.
// The weights are cold or lie in the second-level cache.
void product(benchmark::State& state, const WeightBlocksInfo& info, std::int64_t n_in, int n_rows, bool cold,
             WeightLayout layout, int n_threads) {
  if (!has_quantised_products()) return state.SkipWithError("not on this instruction set");
  const auto row = static_cast<std::size_t>(n_in / info.n_weights) * info.n_bytes;
  const std::size_t bytes = n_rows > 16 ? std::size_t{1} << 22 : kColdBytes / 4;
  constexpr std::int64_t kGrain = 32;  // weight rows that a thread takes at a time
  const auto n_out = static_cast<std::int64_t>((cold ? bytes : std::size_t{1} << 19) / row) / kGrain * kGrain;
  const SystemMemory weights(row * static_cast<std::size_t>(n_out), false);
  std::fill_n(weights.get(), weights.size(), std::byte{0x3C});  // makes scales that are no subnormal numbers
  const std::vector<float> x = random_numbers(static_cast<std::size_t>(n_rows * n_in));
  const auto rows = hwy::AllocateAligned<RowBlock>(static_cast<std::size_t>(n_rows * n_in / kRowBlock));
  quantise_rows(x.data(), n_in, 0, n_rows, {rows.get(), n_rows});
  std::vector<float> y(static_cast<std::size_t>(n_rows * n_out));
  const ProductTask task{.weights = weights.get(),
                         .next = nullptr,
                         .weight_stride = row,
                         .n_out = n_out,
                         .first = 0,
                         .last = n_out,
                         .rows = {rows.get(), n_rows},
                         .first_row = 0,
                         .n_rows = n_rows,
                         .n_in = n_in,
                         .y = y.data(),
                         .y_stride = n_out,
                         .layout = layout};
  const auto work = [&](std::int64_t thread) {
    ProductTask part = task;
    part.first = n_out / kGrain * thread / n_threads * kGrain;
    part.last = n_out / kGrain * (thread + 1) / n_threads * kGrain;
    quantised_product(info.blocks, part);
  };
  for (auto _ : state) {
    std::vector<std::jthread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(work, t);
    work(0);
    benchmark::DoNotOptimize(y.data());
  }
  const auto n = static_cast<double>(state.iterations());
  const double gbytes = static_cast<double>(weights.size()) * n / 1e9;
  const double gops = 2.0 * static_cast<double>(n_in * n_out * n_rows) * n / 1e9;
  const double share = n_rows > 16 ? gops / limits.int8_gops : gbytes / limits.read_gbps[n_threads];
  state.counters["GB/s"] = benchmark::Counter(gbytes, benchmark::Counter::kIsRate);
  state.counters["GOP/s"] = benchmark::Counter(gops, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(share, benchmark::Counter::kIsRate);
}

// Measures expected scores, which are in double precision, whose limit is half of float32's.
void expected(benchmark::State& state, int n_group, int head_dim, int n_entries) {
  const AttentionShape shape = make_shape(n_group, head_dim, EntryType::kF16);
  const PagedHeads heads(shape, 1, n_entries);
  const std::vector<double> mean(static_cast<std::size_t>(n_group * head_dim), 0.1);
  const std::vector<double> covariance(mean.size() * static_cast<std::size_t>(head_dim), 0.01);
  std::vector<double> out(static_cast<std::size_t>(n_group * n_entries));
  for (auto _ : state) {
    expected_scores(shape, heads.entries[0], n_entries, mean, covariance, out);
    benchmark::DoNotOptimize(out.data());
  }
  count_flops(state, 1.0 * n_entries * head_dim * head_dim * n_group, limits.gflops / 2);  // of one triangle only
}

void projected(benchmark::State& state, int n_group, int head_dim, int n_embd, int n_entries) {
  const AttentionShape shape = make_shape(n_group, head_dim, EntryType::kF16);
  const PagedHeads heads(shape, 1, n_entries);
  const std::vector<float> w_o = random_numbers(static_cast<std::size_t>(n_group * head_dim * n_embd));
  std::vector<float> out(static_cast<std::size_t>(n_entries));
  for (auto _ : state) {
    projected_value_norms(shape, heads.entries[0], w_o, n_embd, out);
    benchmark::DoNotOptimize(out.data());
  }
  count_flops(state, 2.0 * n_group * head_dim * n_embd * n_entries);
}

void add_benchmarks() {
  for (const auto& [n_group, head_dim] : {std::pair{3, 64}, {1, 64}, {2, 80}, {4, 128}, {8, 128}, {8, 256}}) {
    for (const int n_entries : {512, 4096}) {
      const std::string name =
          "causal/f16/G" + std::to_string(n_group) + "/d" + std::to_string(head_dim) + "/N" + std::to_string(n_entries);
      benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { causal(state, n_group, head_dim, n_entries, EntryType::kF16); });
    }
  }
  for (const EntryType type : {EntryType::kF32, EntryType::kBF16, EntryType::kQ8_0}) {
    const std::string name(entry_type_name(type));
    benchmark::RegisterBenchmark(("causal/" + name + "/G3/d64/N4096").c_str(),
                                 [=](benchmark::State& state) { causal(state, 3, 64, 4096, type); });
  }
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    for (const auto& [name, how] :
         {std::pair{"column_sums/", ColumnFold::kSum}, {"column_maxima/", ColumnFold::kMax}}) {
      benchmark::RegisterBenchmark((name + std::string(entry_type_name(type)) + "/G3/d64/N4096").c_str(),
                                   [=](benchmark::State& state) { fold(state, how, 3, 64, 4096, type); });
    }
  }
  benchmark::RegisterBenchmark("query_moments/d64", [](benchmark::State& state) { moments(state, 64, 512); });
  benchmark::RegisterBenchmark("expected_scores/f16/G3/d64/N4096",
                               [](benchmark::State& state) { expected(state, 3, 64, 4096); });
  for (const EntryType type :
       {EntryType::kF16, EntryType::kF32, EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    for (const auto& [n_group, head_dim] : {std::pair{1, 64}, {3, 64}, {4, 128}, {8, 128}}) {
      for (const int n_threads : {1, 2}) {
        for (const bool huge : {false, true}) {
          const std::string name = "decode/" + std::string(entry_type_name(type)) + "/G" + std::to_string(n_group) +
                                   "/d" + std::to_string(head_dim) + "/threads" + std::to_string(n_threads) +
                                   (huge ? "/large_pages" : "");
          benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
            decode(state, n_group, head_dim, 4096, type, n_threads, kColdBytes, huge);
          })->UseRealTime();
        }
      }
    }
  }
  for (const EntryType type : {EntryType::kF16, EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    for (const auto& [n_group, head_dim] : {std::pair{3, 64}, {4, 64}, {4, 128}, {8, 128}}) {
      const std::string name = "decode_in_cache/" + std::string(entry_type_name(type)) + "/G" +
                               std::to_string(n_group) + "/d" + std::to_string(head_dim);
      benchmark::RegisterBenchmark(name.c_str(), [=, n_group = n_group, head_dim = head_dim](benchmark::State& state) {
        decode(state, n_group, head_dim, 1024, type, 1, 1 << 18, false);
      });
    }
  }
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    for (const int n_rows : {1, 2, 4, 16, 64, 512}) {
      for (const bool cold : {false, true}) {
        for (const auto& [layout, suffix] :
             {std::pair{WeightLayout::kRows, ""}, {WeightLayout::kInterleaved, "/interleaved"}}) {
          for (const int n_threads : {1, 2}) {
            if (n_threads > 1 && (!cold || n_rows > 4)) continue;
            const std::string label = "product/" + std::string(info.name) + "/2048/rows" + std::to_string(n_rows) +
                                      "/threads" + std::to_string(n_threads) + (cold ? "" : "/in_cache") + suffix;
            benchmark::RegisterBenchmark(label.c_str(), [=, layout = layout](benchmark::State& state) {
              product(state, info, 2048, n_rows, cold, layout, n_threads);
            })->UseRealTime();
          }
        }
      }
    }
  }
  for (const int n_rows : {8, 32, 64}) {
    for (const bool mean_only : {false, true}) {
      const std::string name = "window/f16/G3/d64/w" + std::to_string(n_rows) + (mean_only ? "/mean" : "");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { window(state, 3, 64, n_rows, 4096, mean_only); });
    }
  }
  benchmark::RegisterBenchmark("projected_norms/f16/G3/d64/D576",
                               [](benchmark::State& state) { projected(state, 3, 64, 576, 4096); });
  benchmark::RegisterBenchmark("projected_norms/f16/G4/d128/D4096",
                               [](benchmark::State& state) { projected(state, 4, 128, 4096, 1024); });
}

}  // namespace
}  // namespace winnow::bench

int main(int argc, char** argv) {
  using namespace winnow;
  kernels::use_environment_isa();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  {
    const bench::SystemMemory memory(bench::kColdBytes, true);
    const std::span<const std::byte> all(memory.get(), memory.size());
    bench::limits = {bench::peak_gflops(),
                     bench::peak_bf16_gflops(kernels::current_bf16_unit()),
                     bench::peak_int8_gops(kernels::current_int8_unit()),
                     {0, bench::read_gbytes_per_second(all, 1), bench::read_gbytes_per_second(all, 2)}};
  }
  std::printf(
      "limits on %s, per thread: %.0f GFLOP/s of float32, %.0f of bfloat16, %.0f GOP/s of 8-bit integers; "
      "reads at %.1f GB/s on one thread, %.1f on "
      "two\n",
      kernels::current_isa().c_str(), bench::limits.gflops, bench::limits.bf16_gflops, bench::limits.int8_gops,
      bench::limits.read_gbps[1], bench::limits.read_gbps[2]);
  bench::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
