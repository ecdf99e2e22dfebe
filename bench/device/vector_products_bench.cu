// Checks the kernels of a step's products on a GPU and compares their speed with the device's own copies.
//
//   nvcc -O3 -arch=sm_90 -std=c++20 -I src -I include bench/device/vector_products_bench.cu -o vector_products_bench
//   ./vector_products_bench          checks, then times; exits with status 1 if a check fails
//   ./vector_products_bench check    only checks (for compute-sanitizer)
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/kernels/row_steps-inl.h"
#include "device/kernels/vector_products-inl.h"
#include "device_array.h"
#include "kernels/reference/weights.cc"  // so that only this file is compiled
#include "timing.h"

namespace {

using namespace winnow;
using namespace winnow::device;
using bench::check;
using bench::DeviceArray;
using bench::median_us;

struct TypeCase {
  const char* name;  // ggml's name
  WeightType type;
  std::vector<std::size_t> half_offsets;  // byte offsets of the 16-bit scales in a block
};

const TypeCase kTypes[] = {
    {"q4_K", WeightType::kQ4_K, {0, 2}}, {"q6_K", WeightType::kQ6_K, {208}}, {"q8_0", WeightType::kQ8_0, {0}},
    {"q5_K", WeightType::kQ5_K, {0, 2}}, {"q4_0", WeightType::kQ4_0, {0}},   {"q4_1", WeightType::kQ4_1, {0, 2}},
    {"f16", WeightType::kF16, {0}},      {"bf16", WeightType::kBF16, {0}},   {"f32", WeightType::kF32, {0}},
};

const TypeCase& case_of(WeightType type) {
  for (const TypeCase& one : kTypes) {
    if (one.type == type) return one;
  }
  std::abort();
}

std::size_t row_bytes(WeightType type, int n_in) {
  const products::Layout layout = products::layout_of(type);
  return static_cast<std::size_t>(n_in / layout.block_numbers) * static_cast<std::size_t>(layout.block_bytes);
}

struct HostWeight {
  std::vector<std::byte> bytes;
  std::vector<double> numbers;
};

HostWeight random_weight(WeightType type, int n_out, int n_in, std::mt19937& random) {
  HostWeight w;
  const std::size_t n = static_cast<std::size_t>(n_out) * static_cast<std::size_t>(n_in);
  w.bytes.resize((row_bytes(type, n_in) * static_cast<std::size_t>(n_out) + 15) / 16 * 16);
  if (is_float_type(type)) {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < n; ++i) {
      float x = normal(random);
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof bits);
      if (type == WeightType::kF32) {
        std::memcpy(w.bytes.data() + 4 * i, &x, sizeof x);
      } else if (type == WeightType::kBF16) {
        std::memcpy(w.bytes.data() + 2 * i, reinterpret_cast<const std::byte*>(&bits) + 2, 2);
        bits &= 0xFFFF0000U;
        std::memcpy(&x, &bits, sizeof x);
      } else {
        const __half half = __float2half_rn(x);
        std::memcpy(w.bytes.data() + 2 * i, &half, 2);
        x = __half2float(half);
      }
      w.numbers.push_back(static_cast<double>(x));
    }
    return w;
  }
  for (std::byte& b : w.bytes) b = static_cast<std::byte>(random());
  const auto block = static_cast<std::size_t>(products::layout_of(type).block_bytes);
  for (std::size_t at = 0; at + block <= w.bytes.size(); at += block) {
    for (const std::size_t offset : case_of(type).half_offsets) {
      const __half half = __float2half_rn((static_cast<float>(random() % 2000) - 1000.0F) * 1e-4F);
      std::memcpy(w.bytes.data() + at + offset, &half, 2);
    }
  }
  w.numbers = kernels::reference::weights(*kernels::weight_blocks(case_of(type).name), w.bytes.data(), n);
  return w;
}

std::vector<float> random_floats(std::size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& number : x) number = normal(random);
  return x;
}

struct EightBitArrays {
  EightBitArrays(int n_rows, int n)
      : numbers(static_cast<std::size_t>(n_rows) * n), scales(static_cast<std::size_t>(n_rows) * n / 16) {}
  EightBitRows rows() const { return {numbers.data(), scales.data()}; }
  std::vector<double> read() const {
    const std::vector<std::int8_t> bytes = numbers.read();
    const std::vector<float> of_blocks = scales.read();
    std::vector<double> x(bytes.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(of_blocks[i / 32 * 2]) * bytes[i];
    return x;
  }

  DeviceArray<std::int8_t> numbers;
  DeviceArray<float> scales;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Quantises rows of x by QuantiseRows and compares their products, for each number of rows, with products in double
// precision over the quantised bytes. Returns true if all agree.
bool check_products(const std::vector<WeightType>& types, int n_in, std::vector<int> n_out) {
  std::mt19937 random(7);
  const std::vector<float> x = random_floats(static_cast<std::size_t>(kMaxProductRows) * n_in, random);
  const DeviceArray<float> x_device(x);
  const EightBitArrays eight(kMaxProductRows, n_in);
  simt::Queue queue;
  queue_quantise_rows(queue, {.x = x_device.data(), .to = eight.rows(), .n_rows = kMaxProductRows, .n = n_in});
  check(queue.error);
  const std::vector<double> x_eight = eight.read();
  std::string wrong;
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x_eight[i] - static_cast<double>(x[i])) > 0.02) wrong = " QUANTISED";
  }
  std::vector<HostWeight> weights;
  std::vector<DeviceArray<std::byte>> on_device;
  VectorProduct plan = {};
  plan.n_in = n_in;
  plan.x = eight.rows();
  plan.x_float = x_device.data();
  std::vector<std::vector<float>> bias, add;
  std::vector<DeviceArray<float>> bias_device, add_device, y;
  std::string names;
  for (std::size_t p = 0; p < types.size(); ++p) {
    weights.push_back(random_weight(types[p], n_out[p], n_in, random));
    on_device.emplace_back(weights.back().bytes);
    bias.push_back(random_floats(static_cast<std::size_t>(n_out[p]), random));
    add.push_back(random_floats(static_cast<std::size_t>(n_out[p]) * kMaxProductRows, random));
    bias_device.emplace_back(bias.back());
    add_device.emplace_back(add.back());
    y.emplace_back(add.back().size());
    plan.parts[plan.n_parts++] = {.weight = on_device[p].data(),
                                  .type = types[p],
                                  .n_out = n_out[p],
                                  .y = y[p].data(),
                                  .bias = bias_device[p].data(),
                                  .add = add_device[p].data()};
    names += std::string(p > 0 ? " " : "") + case_of(types[p]).name + " " + std::to_string(n_out[p]);
  }
  std::vector<std::vector<float>> of_all;
  for (int n_rows = kMaxProductRows; n_rows >= 1; --n_rows) {
    plan.n_rows = n_rows;
    for (DeviceArray<float>& one : y) one.fill(0xFF);
    queue_vector_product(queue, plan);
    check(queue.error);
    check(cudaDeviceSynchronize());
    for (std::size_t p = 0; p < types.size(); ++p) {
      std::vector<float> result = y[p].read();
      result.resize(static_cast<std::size_t>(n_rows) * n_out[p]);
      if (n_rows == kMaxProductRows) {
        of_all.push_back(result);
        continue;
      }
      std::vector<float> expected = of_all[p];
      expected.resize(result.size());
      if (!same_bits(result, expected)) wrong += " OTHER-BITS-OF-" + std::to_string(n_rows) + "-ROWS";
    }
  }
  for (std::size_t p = 0; p < types.size(); ++p) {
    for (int r = 0; r < kMaxProductRows; ++r) {
      for (int o = 0; o<n_out[p]; o += n_out[p]> 500 ? 7 : 1) {
        double sum = 0, magnitude = 0;
        for (int i = 0; i < n_in; ++i) {
          const std::size_t at = static_cast<std::size_t>(r) * n_in + i;
          const double product = weights[p].numbers[static_cast<std::size_t>(o) * n_in + i] *
                                 (is_float_type(types[p]) ? static_cast<double>(x[at]) : x_eight[at]);
          sum += product;
          magnitude += std::abs(product);
        }
        const std::size_t at = static_cast<std::size_t>(r) * n_out[p] + o;
        sum += static_cast<double>(bias[p][static_cast<std::size_t>(o)]) + static_cast<double>(add[p][at]);
        const double error = std::abs(static_cast<double>(of_all[p][at]) - sum) / (magnitude + std::abs(sum));
        if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
      }
    }
  }
  if (!(largest <= 1e-6)) wrong += " OUTPUT";
  std::printf("  %-34s n_in %5d  largest error %.1e of the sum of magnitudes %s\n", names.c_str(), n_in, largest,
              wrong.empty() ? "ok" : wrong.c_str());
  return wrong.empty();
}

bool check_row_steps(int n) {
  constexpr int kRows = 5;
  std::mt19937 random(9);
  const auto size = static_cast<std::size_t>(kRows) * static_cast<std::size_t>(n);
  const std::vector<float> a = random_floats(size, random), b = random_floats(size, random),
                           weight = random_floats(static_cast<std::size_t>(n), random);
  const DeviceArray<float> x(a), add(b), weight_device(weight), out(size), gate(a);
  const EightBitArrays eight(kRows, n), of_gate(kRows, n);
  simt::Queue queue;
  queue_rms_norm_rows(queue, {.x = x.data(),
                              .add = add.data(),
                              .weight = weight_device.data(),
                              .eps = 1e-5F,
                              .out = out.data(),
                              .eight = eight.rows(),
                              .n_rows = kRows,
                              .n = n});
  queue_gated_rows(queue, {.gate = gate.data(),
                           .up = add.data(),
                           .activation = GateActivation::kSilu,
                           .out = gate.data(),
                           .eight = of_gate.rows(),
                           .n_rows = kRows,
                           .n = n});
  check(queue.error);
  check(cudaDeviceSynchronize());
  const std::vector<float> sums = x.read(), normed = out.read(), gated = gate.read();
  const std::vector<double> normed_eight = eight.read(), gated_eight = of_gate.read();
  double largest = 0, largest_eight = 0;
  for (int r = 0; r < kRows; ++r) {
    double squares = 0;
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(r) * n + i;
      const auto sum = static_cast<double>(a[at] + b[at]);
      if (sums[at] != a[at] + b[at]) largest = 1e9;
      squares += sum * sum;
    }
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(r) * n + i;
      const double expected = static_cast<double>(a[at] + b[at]) / std::sqrt(squares / n + 1e-5) *
                              static_cast<double>(weight[static_cast<std::size_t>(i)]);
      const double of_a = static_cast<double>(a[at]);
      const double expected_gate = of_a / (1 + std::exp(-of_a)) * static_cast<double>(b[at]);
      largest = std::max({largest, std::abs(static_cast<double>(normed[at]) - expected) / (1 + std::abs(expected)),
                          std::abs(static_cast<double>(gated[at]) - expected_gate) / (1 + std::abs(expected_gate))});
      largest_eight =
          std::max({largest_eight, std::abs(normed_eight[at] - expected), std::abs(gated_eight[at] - expected_gate)});
    }
  }
  const bool is_right = largest <= 3e-6 && largest_eight <= 0.06;
  std::printf("  norm and gate of %5d              largest error %.1e, in 8 bits %.1e %s\n", n, largest, largest_eight,
              is_right ? "ok" : "WRONG");
  return is_right;
}

bool check_all() {
  std::printf("checks against double precision:\n");
  bool is_right = true;
  for (const TypeCase& one : kTypes) {
    const bool is_large = products::layout_of(one.type).block_numbers == 256;
    for (const int n_in : is_large ? std::vector<int>{256, 2816, 4096, 14336} : std::vector<int>{32, 2208, 4096}) {
      is_right = check_products({one.type}, n_in, {n_in > 4096 ? 129 : n_in > 256 ? 801 : 13337}) && is_right;
    }
  }
  using enum WeightType;
  is_right = check_products({kQ4_K, kQ4_K, kQ6_K}, 4096, {700, 133, 133}) && is_right;
  is_right = check_products({kQ6_K, kQ5_K}, 2048, {700, 133}) && is_right;
  is_right = check_products({kQ8_0, kQ8_0, kQ8_0}, 1056, {65, 1, 64}) && is_right;
  is_right = check_products({kQ4_K, kQ8_0, kF16}, 512, {65, 33, 64}) && is_right;
  for (const int n : {32, 4096, 5120, 16384}) is_right = check_row_steps(n) && is_right;
  return is_right;
}

// Returns the median microseconds of a graph of the kernels that `work` queues.
double time_of_graph(cudaStream_t stream, bool overlaps, const std::function<void(simt::Queue&)>& work) {
  cudaGraph_t graph;
  cudaGraphExec_t recording;
  simt::Queue queue{.stream = stream};
  queue.overlaps = overlaps;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work(queue);
  check(queue.error);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&recording, graph, 0));
  const double us = median_us(stream, 11, [&](int) { check(cudaGraphLaunch(recording, stream)); });
  check(cudaGraphExecDestroy(recording));
  check(cudaGraphDestroy(graph));
  return us;
}

// Writes meaningless weights for timing: a block's scales are small numbers in every type.
__global__ void fill_weights(std::uint32_t* words, std::size_t n) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9E3779B1U;
    h = (h ^ h >> 15) * 0x85EBCA77U;
    words[i] = (h ^ h >> 13) & 0x2F2F2F2FU;
  }
}

// The buffers of a step, and weights that are taken one after the other from a range larger than the caches.
class Timed {
 public:
  static constexpr int kMostIn = 14336;
  static constexpr int kMostOut = 128256;
  static constexpr std::size_t kBytes = std::size_t{9} << 30;

  Timed()
      : weights_(kBytes),
        x_(static_cast<std::size_t>(kMaxProductRows) * kMostIn),
        eight_(kMaxProductRows, kMostIn),
        y_(static_cast<std::size_t>(kMaxProductRows) * kMostOut),
        gate_(x_.size()),
        up_(x_.size()),
        norm_(kMostIn) {
    fill_weights<<<2048, 256>>>(reinterpret_cast<std::uint32_t*>(weights_.data()), kBytes / 4);
    x_.fill(0x3C);
    gate_.fill(0);
    up_.fill(0);
    norm_.fill(0x3C);
    simt::Queue queue;
    queue_quantise_rows(queue, {.x = x_.data(), .to = eight_.rows(), .n_rows = kMaxProductRows, .n = kMostIn});
    check(queue.error);
    check(cudaDeviceSynchronize());
  }

  std::byte* next_weight(std::size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (at_ + bytes > kBytes) at_ = 0;
    at_ += bytes;
    return weights_.data() + at_ - bytes;
  }
  void rewind() { at_ = 0; }

  void product(simt::Queue& queue, const std::vector<WeightType>& types, const std::vector<int>& n_out, int n_in,
               int n_rows, const std::vector<float*>& y, bool adds) {
    VectorProduct plan = {};
    plan.n_in = n_in;
    plan.n_rows = n_rows;
    plan.x = eight_.rows();
    plan.x_float = x_.data();
    for (std::size_t p = 0; p < types.size(); ++p) {
      plan.parts[plan.n_parts++] = {
          .weight = next_weight(row_bytes(types[p], n_in) * static_cast<std::size_t>(n_out[p])),
          .type = types[p],
          .n_out = n_out[p],
          .y = y[p],
          .bias = nullptr,
          .add = adds ? y[p] : nullptr};
    }
    queue_vector_product(queue, plan);
  }

  void norm(simt::Queue& queue, int n_rows, int n) {
    queue_rms_norm_rows(queue, {.x = x_.data(),
                                .add = nullptr,
                                .weight = norm_.data(),
                                .eps = 1e-5F,
                                .out = nullptr,
                                .eight = eight_.rows(),
                                .n_rows = n_rows,
                                .n = n});
  }
  void quantise(simt::Queue& queue, int n_rows, int n) {
    queue_quantise_rows(queue, {.x = y_.data(), .to = eight_.rows(), .n_rows = n_rows, .n = n});
  }
  void gate(simt::Queue& queue, int n_rows, int n) {
    queue_gated_rows(queue, {.gate = gate_.data(),
                             .up = up_.data(),
                             .activation = GateActivation::kSilu,
                             .out = nullptr,
                             .eight = eight_.rows(),
                             .n_rows = n_rows,
                             .n = n});
  }

  float* x() const { return x_.data(); }
  float* y() const { return y_.data(); }
  float* gates() const { return gate_.data(); }
  float* ups() const { return up_.data(); }

 private:
  DeviceArray<std::byte> weights_;
  DeviceArray<float> x_;
  EightBitArrays eight_;
  DeviceArray<float> y_, gate_, up_, norm_;
  std::size_t at_ = 0;
};

// Queues all launches of a step of an 8B model except attention, rotation and the residual's own (products add it).
void queue_step(Timed& timed, simt::Queue& queue, WeightType type, WeightType value_type, int n_rows, bool has_logits) {
  for (int l = 0; l < 32; ++l) {
    timed.norm(queue, n_rows, 4096);
    timed.product(queue, {type, type, l % 2 == 0 ? type : value_type}, {4096, 1024, 1024}, 4096, n_rows,
                  {timed.y(), timed.gates(), timed.ups()}, false);
    timed.quantise(queue, n_rows, 4096);
    timed.product(queue, {type}, {4096}, 4096, n_rows, {timed.x()}, true);
    timed.norm(queue, n_rows, 4096);
    timed.product(queue, {type, type}, {14336, 14336}, 4096, n_rows, {timed.gates(), timed.ups()}, false);
    timed.gate(queue, n_rows, 14336);
    timed.product(queue, {l % 2 == 0 ? type : value_type}, {4096}, 14336, n_rows, {timed.x()}, true);
  }
  timed.norm(queue, n_rows, 4096);
  if (has_logits) timed.product(queue, {value_type}, {128256}, 4096, n_rows, {timed.y()}, false);
}

std::size_t step_bytes(WeightType type, WeightType value_type, bool has_logits) {
  std::size_t n = 0;
  for (int l = 0; l < 32; ++l) {
    const WeightType of_value = l % 2 == 0 ? type : value_type;
    n += row_bytes(type, 4096) * (4096 + 1024 + 4096 + 2 * 14336) + row_bytes(of_value, 4096) * 1024 +
         row_bytes(of_value, 14336) * 4096;
  }
  return n + (has_logits ? row_bytes(value_type, 4096) * 128256 : 0);
}

void time_all() {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  double copy = 0;
  {
    constexpr std::size_t kBytes = std::size_t{2} << 30;
    const DeviceArray<std::byte> a(kBytes), b(kBytes);
    copy = 2.0 * kBytes * 1e-3 / median_us(stream, 15, [&](int) {
             check(cudaMemcpyAsync(b.data(), a.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
           });
  }
  std::printf("\ncopy of 2 GiB: %.0f GB/s read and written\n\n", copy);
  Timed timed;
  struct Shape {
    std::string name;
    int n_in;
    std::vector<int> n_out;
  };
  const Shape shapes[] = {{"4096 -> 4096", 4096, {4096}},
                          {"4096 -> 1024", 4096, {1024}},
                          {"4096 -> 4096, 1024, 1024", 4096, {4096, 1024, 1024}},
                          {"4096 -> 14336", 4096, {14336}},
                          {"4096 -> 14336, 14336", 4096, {14336, 14336}},
                          {"14336 -> 4096", 14336, {4096}},
                          {"4096 -> 128256", 4096, {128256}}};
  std::printf("| %-5s | %-24s | %4s | %8s | %10s | %7s | %8s | %8s |\n", "type", "numbers in -> out", "rows", "MB",
              "graph, us", "GB/s", "of copy", "early us");
  std::printf("|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (const TypeCase& one : kTypes) {
    for (const Shape& shape : shapes) {
      for (const int n_rows : {1, 2, 4, 8}) {
        std::size_t bytes = 0;
        for (const int n : shape.n_out) bytes += row_bytes(one.type, shape.n_in) * static_cast<std::size_t>(n);
        // The products run one after the other in a graph, each with its own weights, which together exceed the caches.
        const int n = static_cast<int>(std::clamp<std::size_t>((std::size_t{1} << 30) / bytes, 4, 48));
        const auto work = [&](simt::Queue& queue) {
          timed.rewind();
          for (int i = 0; i < n; ++i) {
            timed.product(queue, std::vector<WeightType>(shape.n_out.size(), one.type), shape.n_out, shape.n_in, n_rows,
                          {timed.y(), timed.gates(), timed.ups()}, false);
          }
        };
        const double us = time_of_graph(stream, false, work) / n;
        const double early = time_of_graph(stream, true, work) / n;
        const double rate = static_cast<double>(bytes) / us * 1e-3;
        std::printf("| %-5s | %-24s | %4d | %8.1f | %10.2f | %7.0f | %6.0f %% | %8.2f |\n", one.name,
                    shape.name.c_str(), n_rows, static_cast<double>(bytes) * 1e-6, us, rate, 100 * rate / copy, early);
      }
    }
    std::fflush(stdout);
  }
  std::printf("\nthe small launches of a step, us each, within a graph of 64:\n");
  for (const int n_rows : {1, 8}) {
    const auto of_64 = [&](const std::function<void(simt::Queue&)>& work) {
      return time_of_graph(stream, false,
                           [&](simt::Queue& queue) {
                             for (int i = 0; i < 64; ++i) work(queue);
                           }) /
             64;
    };
    std::printf("  %d rows: norm and 8 bits of 4096: %.2f, 8 bits of 4096: %.2f, gate and 8 bits of 14336: %.2f\n",
                n_rows, of_64([&](simt::Queue& queue) { timed.norm(queue, n_rows, 4096); }),
                of_64([&](simt::Queue& queue) { timed.quantise(queue, n_rows, 4096); }),
                of_64([&](simt::Queue& queue) { timed.gate(queue, n_rows, 14336); }));
  }
  std::printf("\na step of 32 layers of an 8B but attention, in one graph, with logits:\n\n");
  std::printf("| %-14s | %4s | %8s | %8s | %8s | %10s |\n", "types", "rows", "GB", "ms", "of copy", "early, ms");
  std::printf("|---|---:|---:|---:|---:|---:|\n");
  using enum WeightType;
  const WeightType mixes[][2] = {{kQ4_K, kQ6_K}, {kQ4_K, kQ4_K}, {kQ8_0, kQ8_0}, {kQ4_0, kQ4_0}};
  for (const auto& [type, value_type] : mixes) {
    for (const int n_rows : {1, 2, 4, 8}) {
      const auto work = [&, type = type, value_type = value_type](simt::Queue& queue) {
        timed.rewind();
        queue_step(timed, queue, type, value_type, n_rows, true);
      };
      const double us = time_of_graph(stream, false, work);
      const double early = time_of_graph(stream, true, work);
      const auto bytes = static_cast<double>(step_bytes(type, value_type, true));
      std::printf("| %-14s | %4d | %8.2f | %8.3f | %6.0f %% | %10.3f |\n",
                  (std::string(case_of(type).name) + " " + case_of(value_type).name).c_str(), n_rows, bytes * 1e-9,
                  us * 1e-3, 100 * bytes / us * 1e-3 / copy, early * 1e-3);
      std::fflush(stdout);
    }
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
