// Checks the kernel of ragged decode attention on a GPU and compares its speed with the device's own copies.
//
//   nvcc -O3 -arch=sm_90 -std=c++20 -I src -I include bench/device/step_attention_bench.cu -o step_attention_bench
//   ./step_attention_bench          checks, then times; exits with status 1 if a check fails
//   ./step_attention_bench check    only checks (for compute-sanitizer)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/kernels/copies-inl.h"
#include "device/kernels/step_attention-inl.h"
#include "device/kernels/store_rows-inl.h"
#include "device_array.h"
#include "timing.h"

namespace {

using namespace winnow;
using namespace winnow::device;
using bench::check;
using bench::DeviceArray;
using bench::median_us;

std::vector<float> all_numbers(EntryType type) {
  std::vector<float> numbers(1U << 16U);
  for (std::uint32_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t wide = i << 16U;
    __half_raw raw;
    raw.x = static_cast<unsigned short>(i);
    numbers[i] = __half2float(__half(raw));
    if (type == EntryType::kBF16) std::memcpy(&numbers[i], &wide, sizeof wide);
  }
  return numbers;
}

float number_of(EntryType type, std::uint16_t bits) {
  static const std::vector<float> f16 = all_numbers(EntryType::kF16);
  static const std::vector<float> bf16 = all_numbers(EntryType::kBF16);
  return (type == EntryType::kBF16 ? bf16 : f16)[bits];
}

std::uint16_t bits_of(EntryType type, float x) {
  if (type == EntryType::kBF16) return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x;
  return __half_raw(__float2half_rn(std::min(65504.0F, std::max(-65504.0F, x)))).x;
}

__global__ void fill_numbers(std::uint32_t* words, std::size_t n, std::uint32_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    std::uint32_t h = (static_cast<std::uint32_t>(i) ^ seed) * 0x9E3779B1U;
    h = (h ^ h >> 15) * 0x85EBCA77U;
    h ^= h >> 13;
    const __half2 pair =
        __floats2half2_rn(static_cast<float>(h & 0xFFFFU) / 32768 - 1, static_cast<float>(h >> 16) / 32768 - 1);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

struct Shape {
  std::string name;
  int n_kv_head, n_group, key_dim, value_dim;
  std::vector<int> lengths;  // [n_sequences][n_kv_head]
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  bool skips_slots = false;
  int window = 0;
  float soft_cap = 0;
  bool has_sinks = false;
  float magnitude = 1;
  EntryType codes = EntryType::kF32;  // the type of all keys and values if they are codes; then no row is stored

  bool has_codes() const { return codes != EntryType::kF32; }
  // Returns the bytes of a row.
  std::size_t row_bytes(int dim) const {
    const auto n = static_cast<std::size_t>(dim);
    if (!has_codes()) return 2 * n;
    const bool is_rotated = codes == EntryType::kR4 || codes == EntryType::kR3;
    const std::size_t block = is_rotated ? std::min(n & -n, std::size_t{128}) : 32;
    const std::size_t bits = codes == EntryType::kQ8_0 ? 8 : codes == EntryType::kR3 ? 3 : 4;
    return n / block * (2 + block * bits / 8);
  }
};

// A decode step whose pages lie in the device's memory in shuffled order.
class Step {
 public:
  Step(const Shape& shape, unsigned seed, bool on_device) : shape_(shape), random_(seed) {
    const int n_rows = static_cast<int>(shape.lengths.size());
    n_sequences_ = n_rows / shape.n_kv_head;
    const int n_head = shape.n_kv_head * shape.n_group;
    for (int r = 0; r < n_rows; ++r) {
      first_slot_.push_back(shape.skips_slots ? static_cast<int>(random_() % kPageSlots) : 0);
      first_page_.push_back(n_pages_);
      n_pages_ += (first_slot_.back() + shape.lengths[static_cast<std::size_t>(r)] + kPageSlots - 1) / kPageSlots;
    }
    place_.resize(static_cast<std::size_t>(n_pages_));
    std::iota(place_.begin(), place_.end(), 0);
    std::shuffle(place_.begin(), place_.end(), random_);
    page_numbers_ = kPageSlots * (shape.row_bytes(shape.key_dim) + shape.row_bytes(shape.value_dim)) / 2;
    pool_ = std::make_unique<DeviceArray<std::uint16_t>>(page_numbers_ * static_cast<std::size_t>(n_pages_));
    if (on_device) {
      fill_numbers<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(pool_->data()), pool_->size() / 2, seed);
      check(cudaGetLastError());
    } else {
      fill_on_host();
    }
    std::vector<PageRows> pages;
    for (const int place : place_) {
      auto* keys = reinterpret_cast<std::byte*>(pool_->data() + page_numbers_ * static_cast<std::size_t>(place));
      std::byte* values = keys + kPageSlots * shape.row_bytes(shape.key_dim);
      // Random float16 numbers are codes, too, whose scales are finite.
      pages.push_back({with_row_type(keys, shape.codes), with_row_type(values, shape.codes)});
    }
    pages_ = std::make_unique<DeviceArray<PageRows>>(pages);
    std::vector<HeadTable> heads;
    for (std::size_t r = 0; r < shape.lengths.size(); ++r) {
      heads.push_back({pages_->data() + first_page_[r], first_slot_[r], shape.lengths[r]});
    }
    heads_ = std::make_unique<DeviceArray<HeadTable>>(heads);
    const auto n_queries = static_cast<std::size_t>(n_sequences_ * n_head);
    q_host_ = numbers(n_queries * static_cast<std::size_t>(shape.key_dim), shape.magnitude);
    k_host_ = numbers(shape.lengths.size() * static_cast<std::size_t>(shape.key_dim), shape.magnitude);
    v_host_ = numbers(shape.lengths.size() * static_cast<std::size_t>(shape.value_dim), 1);
    sinks_host_ = numbers(static_cast<std::size_t>(n_head), 2);
    q_ = std::make_unique<DeviceArray<float>>(q_host_);
    k_ = std::make_unique<DeviceArray<float>>(k_host_);
    v_ = std::make_unique<DeviceArray<float>>(v_host_);
    sinks_ = std::make_unique<DeviceArray<float>>(sinks_host_);
    out_ = std::make_unique<DeviceArray<float>>(n_queries * static_cast<std::size_t>(shape.value_dim));
    workspace_ = std::make_unique<DeviceArray<std::byte>>(step_workspace_bytes(n_sequences_, n_head, shape.value_dim));
    workspace_->fill(0);
  }

  LayerAttention layer() const {
    return {.n_head = shape_.n_kv_head * shape_.n_group,
            .n_kv_head = shape_.n_kv_head,
            .key_dim = shape_.key_dim,
            .value_dim = shape_.value_dim,
            .key_type = shape_.key_type,
            .value_type = shape_.value_type,
            .scale = 1 / std::sqrt(static_cast<float>(shape_.key_dim)),
            .soft_cap = shape_.soft_cap,
            .sliding_window = shape_.window,
            .sink_logits = shape_.has_sinks ? sinks_->data() : nullptr};
  }

  void queue(simt::Queue& queue) const { queue_sequences(queue, 0, n_sequences_); }
  void queue_sequences(simt::Queue& queue, int first, int n) const {
    const auto at = static_cast<std::size_t>(first);
    const auto kv = at * static_cast<std::size_t>(shape_.n_kv_head);
    const auto heads = kv * static_cast<std::size_t>(shape_.n_group);
    const auto key_dim = static_cast<std::size_t>(shape_.key_dim);
    const auto value_dim = static_cast<std::size_t>(shape_.value_dim);
    queue_step_attention(queue, StepAttention{.layer = layer(),
                                              .q = q_->data() + heads * key_dim,
                                              .k = shape_.has_codes() ? nullptr : k_->data() + kv * key_dim,
                                              .v = v_->data() + kv * value_dim,
                                              .out = out_->data() + heads * value_dim,
                                              .heads = heads_->data() + kv,
                                              .n_sequences = n,
                                              .has_codes = shape_.has_codes(),
                                              .workspace = workspace_->data()});
    check(queue.error);
  }

  std::vector<float> run() {
    out_->fill(0xFF);
    simt::Queue q;
    queue(q);
    check(cudaDeviceSynchronize());
    return out_->read();
  }
  std::vector<float> run_alone() {
    out_->fill(0xFF);
    simt::Queue q;
    for (int s = 0; s < n_sequences_; ++s) queue_sequences(q, s, 1);
    check(cudaDeviceSynchronize());
    return out_->read();
  }

  bool leaves_workspace_ready() const {
    const std::vector<std::byte> bytes = workspace_->read();
    const auto n = static_cast<std::ptrdiff_t>(shape_.lengths.size()) * shape_.n_group * 4;
    return std::all_of(bytes.begin(), bytes.begin() + n, [](std::byte b) { return b == std::byte{0}; });
  }

  // Returns true if all bytes of all pages are unchanged except the step's own rows, and those are stored.
  bool stored_own_rows() const {
    std::vector<std::uint16_t> expected = pool_host_;
    for (std::size_t r = 0; r < shape_.lengths.size(); ++r) {
      const int own = shape_.lengths[r] - 1;
      for (int d = 0; d < shape_.key_dim; ++d) {
        expected[key_at(r, own) + static_cast<std::size_t>(d)] =
            bits_of(shape_.key_type, k_host_[r * static_cast<std::size_t>(shape_.key_dim) + d]);
      }
      for (int d = 0; d < shape_.value_dim; ++d) {
        expected[value_at(r, own) + static_cast<std::size_t>(d)] =
            bits_of(shape_.value_type, v_host_[r * static_cast<std::size_t>(shape_.value_dim) + d]);
      }
    }
    return expected == pool_->read();
  }

  // Returns the largest difference to attention in double precision over the current content of the pages.
  double largest_error(const std::vector<float>& out) const {
    const std::vector<std::uint16_t> pool = pool_->read();
    double largest = 0;
    for (std::size_t r = 0; r < shape_.lengths.size(); ++r) {
      const int n = shape_.lengths[r];
      const int first = shape_.window > 0 ? std::max(0, n - shape_.window) : 0;
      for (int g = 0; g < shape_.n_group; ++g) {
        const std::size_t query = r * static_cast<std::size_t>(shape_.n_group) + static_cast<std::size_t>(g);
        const int head = static_cast<int>(query) % (shape_.n_kv_head * shape_.n_group);
        std::vector<double> scores;
        double most = shape_.has_sinks ? sinks_host_[static_cast<std::size_t>(head)] : -INFINITY;
        for (int e = first; e < n; ++e) {
          double s = 0;
          for (int d = 0; d < shape_.key_dim; ++d) {
            s += static_cast<double>(q_host_[query * static_cast<std::size_t>(shape_.key_dim) + d]) *
                 number_of(shape_.key_type, pool[key_at(r, e) + static_cast<std::size_t>(d)]);
          }
          s *= layer().scale;
          if (shape_.soft_cap > 0) s = shape_.soft_cap * std::tanh(s / shape_.soft_cap);
          scores.push_back(s);
          most = std::max(most, s);
        }
        double sum = shape_.has_sinks ? std::exp(sinks_host_[static_cast<std::size_t>(head)] - most) : 0;
        std::vector<double> expected(static_cast<std::size_t>(shape_.value_dim));
        for (int e = first; e < n; ++e) {
          const double p = std::exp(scores[static_cast<std::size_t>(e - first)] - most);
          sum += p;
          for (int d = 0; d < shape_.value_dim; ++d) {
            expected[static_cast<std::size_t>(d)] +=
                p * number_of(shape_.value_type, pool[value_at(r, e) + static_cast<std::size_t>(d)]);
          }
        }
        for (int d = 0; d < shape_.value_dim; ++d) {
          const double x = out[query * static_cast<std::size_t>(shape_.value_dim) + static_cast<std::size_t>(d)];
          const double error = std::abs(x - expected[static_cast<std::size_t>(d)] / sum);
          if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
        }
      }
    }
    return largest;
  }

  // Returns the bytes of the entries that a step reads.
  double bytes() const {
    double n = 0;
    for (const int length : shape_.lengths) n += shape_.window > 0 ? std::min(length, shape_.window) : length;
    return n * static_cast<double>(shape_.row_bytes(shape_.key_dim) + shape_.row_bytes(shape_.value_dim));
  }

 private:
  std::size_t page_of(std::size_t row, int entry) const {
    const int page = first_page_[row] + (first_slot_[row] + entry) / kPageSlots;
    return page_numbers_ * static_cast<std::size_t>(place_[static_cast<std::size_t>(page)]);
  }
  std::size_t key_at(std::size_t row, int entry) const {
    return page_of(row, entry) + static_cast<std::size_t>((first_slot_[row] + entry) % kPageSlots * shape_.key_dim);
  }
  std::size_t value_at(std::size_t row, int entry) const {
    return page_of(row, entry) + static_cast<std::size_t>(kPageSlots * shape_.key_dim) +
           static_cast<std::size_t>((first_slot_[row] + entry) % kPageSlots * shape_.value_dim);
  }

  std::vector<float> numbers(std::size_t n, float magnitude) {
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& number : x) number = magnitude * normal(random_);
    return x;
  }

  // Fills the pages; slots without an entry and the step's own slots get NaNs.
  void fill_on_host() {
    pool_host_.assign(pool_->size(), 0xFFFF);
    std::normal_distribution<float> normal;
    for (std::size_t r = 0; r < shape_.lengths.size(); ++r) {
      for (int e = 0; e + 1 < shape_.lengths[r]; ++e) {
        for (int d = 0; d < shape_.key_dim; ++d) {
          pool_host_[key_at(r, e) + static_cast<std::size_t>(d)] =
              bits_of(shape_.key_type, shape_.magnitude * normal(random_));
        }
        for (int d = 0; d < shape_.value_dim; ++d) {
          pool_host_[value_at(r, e) + static_cast<std::size_t>(d)] = bits_of(shape_.value_type, normal(random_));
        }
      }
    }
    pool_->write(pool_host_);
  }

  Shape shape_;
  std::mt19937 random_;
  int n_sequences_ = 0;
  int n_pages_ = 0;
  std::size_t page_numbers_ = 0;
  std::vector<int> first_slot_, first_page_, place_;
  std::vector<float> q_host_, k_host_, v_host_, sinks_host_;
  std::vector<std::uint16_t> pool_host_;
  std::unique_ptr<DeviceArray<std::uint16_t>> pool_;
  std::unique_ptr<DeviceArray<PageRows>> pages_;
  std::unique_ptr<DeviceArray<HeadTable>> heads_;
  std::unique_ptr<DeviceArray<float>> q_, k_, v_, sinks_, out_;
  std::unique_ptr<DeviceArray<std::byte>> workspace_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool check_step(const Shape& shape) {
  constexpr double kTolerance = 5e-4;  // weights are rounded to float16
  Step step(shape, 1, false);
  const std::vector<float> out = step.run();
  const double error = step.largest_error(out);
  std::string wrong;
  if (!(error <= kTolerance * std::max(1.0F, shape.magnitude))) wrong += " OUTPUT";
  if (!step.stored_own_rows()) wrong += " STORED-ROWS";
  if (!step.leaves_workspace_ready()) wrong += " WORKSPACE";
  for (int i = 0; i < 20; ++i) {
    if (!same_bits(out, step.run())) {
      wrong += " NOT-DETERMINISTIC";
      break;
    }
  }
  if (!same_bits(out, step.run_alone())) wrong += " ALONE-OTHER-BITS";
  std::printf("  %-34s largest error %.1e %s\n", shape.name.c_str(), error, wrong.empty() ? "ok" : wrong.c_str());
  return wrong.empty();
}

bool check_rows_and_copies() {
  constexpr int kRows = 75, kHeads = 3, kDim = 96;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3e4F);
  bool is_right = true;
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    std::vector<float> k(kRows * kHeads * kDim), v(k.size());
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random) * 1e-8F;
    const DeviceArray<float> k_device(k), v_device(v);
    constexpr int kFirstSlot = 13, kPages = 4;
    DeviceArray<std::uint16_t> pool(static_cast<std::size_t>(kHeads) * kPages * 2 * kPageSlots * kDim);
    pool.fill(0xFF);
    std::vector<std::uint16_t> expected(pool.size(), 0xFFFF);
    std::vector<PageRows> pages;
    for (int p = 0; p < kHeads * kPages; ++p) {
      auto* rows = reinterpret_cast<std::byte*>(pool.data() + p * 2 * kPageSlots * kDim);
      pages.push_back({rows, rows + 2 * kPageSlots * kDim});
    }
    const DeviceArray<PageRows> pages_device(pages);
    std::vector<HeadTable> heads;
    for (int h = 0; h < kHeads; ++h) {
      heads.push_back({pages_device.data() + h * kPages, kFirstSlot, kRows + 3 * h});
      for (int r = 0; r < kRows; ++r) {
        const int slot = kFirstSlot + 3 * h + r;
        const int at = (h * kPages + slot / kPageSlots) * 2 * kPageSlots * kDim + slot % kPageSlots * kDim;
        for (int d = 0; d < kDim; ++d) {
          expected[static_cast<std::size_t>(at + d)] =
              bits_of(type, k[static_cast<std::size_t>((r * kHeads + h) * kDim + d)]);
          expected[static_cast<std::size_t>(at + kPageSlots * kDim + d)] =
              bits_of(type, v[static_cast<std::size_t>((r * kHeads + h) * kDim + d)]);
        }
      }
    }
    const DeviceArray<HeadTable> heads_device(heads);
    simt::Queue queue;
    queue_store_rows(queue, StoreRows{.layer = {.n_head = kHeads,
                                                .n_kv_head = kHeads,
                                                .key_dim = kDim,
                                                .value_dim = kDim,
                                                .key_type = type,
                                                .value_type = type},
                                      .k = k_device.data(),
                                      .v = v_device.data(),
                                      .heads = heads_device.data(),
                                      .n_rows = kRows});
    check(queue.error);
    check(cudaDeviceSynchronize());
    is_right = is_right && pool.read() == expected;
  }
  std::printf("  %-34s %s\n", "stored rows of a prompt", is_right ? "ok" : "WRONG");

  std::vector<std::byte> bytes(300000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const DeviceArray<std::byte> from(bytes);
  DeviceArray<std::byte> to(bytes.size());
  to.fill(0);
  std::vector<std::byte> expected(bytes.size(), std::byte{0});
  std::vector<ByteCopy> list;
  const std::size_t places[][3] = {{0, 32, 16},           {64, 8192, 256},   {1024, 100, 36},
                                   {2000, 1001, 77},      {4096, 64, 40000}, {50000, 16, 1},
                                   {60000, 60000, 12345}, {80004, 4, 4096},  {100000, 16, 200000}};
  for (const auto& place : places) {
    list.push_back({to.data() + place[0], from.data() + place[1], place[2]});
    std::memcpy(expected.data() + place[0], bytes.data() + place[1], place[2]);
  }
  const DeviceArray<ByteCopy> list_device(list);
  simt::Queue queue;
  queue_copies(queue, Copies{.list = list_device.data(), .n = static_cast<int>(list.size())});
  check(queue.error);
  check(cudaDeviceSynchronize());
  const bool are_copied = to.read() == expected;
  std::printf("  %-34s %s\n", "copies of bytes", are_copied ? "ok" : "WRONG");
  return is_right && are_copied;
}

bool check_all() {
  std::printf("checks against double precision:\n");
  const std::vector<int> ragged = {1, 15, 16, 17, 31, 33, 64, 65, 255, 257, 300, 1000, 3000, 5000, 7, 511};
  constexpr EntryType kBF16 = EntryType::kBF16;
  constexpr EntryType kF16 = EntryType::kF16;
  const Shape shapes[] = {
      {"G 4, 128, ragged", 4, 4, 128, 128, ragged},
      {"G 4, 128, slots skipped", 4, 4, 128, 128, ragged, kF16, kF16, true},
      {"G 1, 64", 4, 1, 64, 64, ragged},
      {"G 7, 64", 2, 7, 64, 64, ragged},
      {"G 8, 128", 2, 8, 128, 128, ragged},
      {"G 12, 64", 2, 12, 64, 64, ragged},
      {"G 2, 256", 2, 2, 256, 256, ragged},
      {"G 4, 80", 2, 4, 80, 80, ragged},
      {"G 4, 96", 2, 4, 96, 96, ragged},
      {"G 16, 192 and 128", 2, 16, 192, 128, ragged},
      {"G 4, 128, bf16", 4, 4, 128, 128, ragged, kBF16, kBF16},
      {"G 4, 256, bf16", 4, 4, 256, 256, ragged, kBF16, kBF16},
      {"G 4, 64, bf16 keys", 4, 4, 64, 64, ragged, kBF16, kF16},
      {"G 4, 128, bf16 values", 4, 4, 128, 128, ragged, kF16, kBF16},
      {"G 4, 128, window 300", 4, 4, 128, 128, ragged, kF16, kF16, true, 300},
      {"G 4, 128, window 1", 4, 4, 128, 128, ragged, kF16, kF16, true, 1},
      {"G 4, 128, soft cap, sinks", 4, 4, 128, 128, ragged, kF16, kF16, false, 0, 2.5F, true},
      {"G 4, 128, large keys", 4, 4, 128, 128, ragged, kF16, kF16, false, 0, 0, false, 4},
      {"G 4, 128, one long head", 1, 4, 128, 128, {40000}},
      {"G 2, 64, 64 sequences", 8, 2, 64, 64, std::vector<int>(64 * 8, 70)},
  };
  bool is_right = true;
  for (const Shape& shape : shapes) is_right = check_step(shape) && is_right;
  return check_rows_and_copies() && is_right;
}

__global__ void read_words(const uint4* words, std::size_t n, std::uint32_t* out) {
  constexpr int kAtOnce = 8;
  std::uint32_t sum = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += kAtOnce * step) {
    uint4 w[kAtOnce];
#pragma unroll
    for (int x = 0; x < kAtOnce; ++x) w[x] = i + x * step < n ? words[i + x * step] : uint4{};
#pragma unroll
    for (int x = 0; x < kAtOnce; ++x) sum += w[x].x ^ w[x].y ^ w[x].z ^ w[x].w;
  }
  if (sum == 0x12345678U) *out = sum;
}

void time_all() {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  double copy = 0, reads = 0;
  {
    constexpr std::size_t kBytes = std::size_t{2} << 30;
    const DeviceArray<std::byte> a(kBytes), b(kBytes);
    const DeviceArray<std::uint32_t> sum(1);
    const double copied = median_us(
        stream, 15, [&](int) { check(cudaMemcpyAsync(b.data(), a.data(), kBytes, cudaMemcpyDeviceToDevice, stream)); });
    copy = 2.0 * kBytes / copied * 1e-3;
    const double read = median_us(stream, 15, [&](int) {
      read_words<<<132 * 16, 256, 0, stream>>>(reinterpret_cast<const uint4*>(a.data()), kBytes / 16, sum.data());
      check(cudaGetLastError());
    });
    reads = static_cast<double>(kBytes) / read * 1e-3;
  }
  std::printf("copy of 2 GiB: %.0f GB/s read and written; reads alone: %.0f GB/s\n\n", copy, reads);
  std::printf("| %-40s | %9s | %9s | %9s | %7s | %9s | %9s |\n", "KV heads x G x head size, entries of a head", "MB",
              "alone, us", "graph, us", "GB/s", "of copy", "of reads");
  std::printf("|%s|---:|---:|---:|---:|---:|---:|\n", std::string(42, '-').c_str());
  const auto same = [](int n_sequences, int n_kv_head, int n) {
    return std::vector<int>(static_cast<std::size_t>(n_sequences * n_kv_head), n);
  };
  constexpr EntryType kBF16 = EntryType::kBF16;
  std::vector<int> mixed;  // as a head allocator leaves them: 10 % on average
  for (int i = 0; i < 16 * 8; ++i) mixed.push_back(600 + 5354 * ((i * 37) % 128) / 127);
  const Shape shapes[] = {
      {"8 x 4 x 128, 131,072", 8, 4, 128, 128, same(1, 8, 131072)},
      {"8 x 4 x 128, 32,768", 8, 4, 128, 128, same(1, 8, 32768)},
      {"8 x 4 x 128, 13,107", 8, 4, 128, 128, same(1, 8, 13107)},
      {"8 x 4 x 128, 6,554", 8, 4, 128, 128, same(1, 8, 6554)},
      {"8 x 4 x 128, 3,277", 8, 4, 128, 128, same(1, 8, 3277)},
      {"8 x 4 x 128, 512", 8, 4, 128, 128, same(1, 8, 512)},
      {"8 x 4 x 128, 16 x 3,277", 8, 4, 128, 128, same(16, 8, 3277)},
      {"8 x 4 x 128, 16 x 600 to 5,954", 8, 4, 128, 128, mixed},
      {"8 x 4 x 128, 64 x 512", 8, 4, 128, 128, same(64, 8, 512)},
      {"8 x 4 x 128, 131,072, bf16", 8, 4, 128, 128, same(1, 8, 131072), kBF16, kBF16},
      {"8 x 4 x 64, 131,072", 8, 4, 64, 64, same(1, 8, 131072)},
      {"8 x 4 x 64, 13,107", 8, 4, 64, 64, same(1, 8, 13107)},
      {"8 x 8 x 128, 131,072", 8, 8, 128, 128, same(1, 8, 131072)},
      {"4 x 16 x 128, 131,072", 4, 16, 128, 128, same(1, 4, 131072)},
      {"32 x 1 x 128, 32,768", 32, 1, 128, 128, same(1, 32, 32768)},
      {"4 x 2 x 256, 131,072", 4, 2, 256, 256, same(1, 4, 131072)},
      {"8 x 4 x 96, 131,072", 8, 4, 96, 96, same(1, 8, 131072)},
  };
  std::vector<Shape> all(std::begin(shapes), std::end(shapes));
  for (const auto& [name, type] :
       {std::pair("r3", EntryType::kR3), std::pair("r4", EntryType::kR4), std::pair("q8_0", EntryType::kQ8_0)}) {
    for (const int dim : {128, 64}) {
      for (const auto& [length, n] : {std::pair("131,072", 131072), std::pair("13,107", 13107)}) {
        Shape& shape = all.emplace_back(Shape{"", 8, 4, dim, dim, same(1, 8, n)});
        shape.name = "8 x 4 x " + std::to_string(dim) + ", " + length + ", " + name;
        shape.codes = type;
      }
    }
  }
  for (const Shape& shape : all) {
    constexpr double kBeyondCaches = 1e9;
    std::vector<std::unique_ptr<Step>> steps;
    double total = 0;
    do {
      steps.push_back(std::make_unique<Step>(shape, 1 + static_cast<unsigned>(steps.size()), true));
      total += steps.back()->bytes();
    } while (total < kBeyondCaches && steps.size() < 40);
    check(cudaDeviceSynchronize());
    simt::Queue queue{stream};
    const auto n = static_cast<int>(steps.size());
    const double alone = median_us(stream, 41, [&](int i) { steps[static_cast<std::size_t>(i % n)]->queue(queue); });
    cudaGraph_t graph;
    cudaGraphExec_t recording;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (const auto& step : steps) step->queue(queue);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&recording, graph, 0));
    const double recorded = median_us(stream, 15, [&](int) { check(cudaGraphLaunch(recording, stream)); }) / n;
    check(cudaGraphExecDestroy(recording));
    check(cudaGraphDestroy(graph));
    const double bytes = steps[0]->bytes();
    const double rate = bytes / recorded * 1e-3;
    std::printf("| %-40s | %9.1f | %9.1f | %9.1f | %7.0f | %7.0f %% | %7.0f %% |\n", shape.name.c_str(), bytes * 1e-6,
                alone, recorded, rate, 100 * rate / copy, 100 * rate / reads);
    std::fflush(stdout);
  }
  check(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d multiprocessors, %.0f MiB of L2\n", properties.name, properties.multiProcessorCount,
              properties.l2CacheSize / 1048576.0);
  const bool is_right = check_all();
  if (argc < 2 || std::string(argv[1]) != "check") time_all();
  if (!is_right) std::printf("error: a check failed\n");
  return is_right ? 0 : 1;
}
