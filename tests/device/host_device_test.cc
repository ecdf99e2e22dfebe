// The test device: copies, graphs, recordings, and faults when the processor touches its memory.
#include "device/host_device.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "../expect_error.h"
#include "device/devices.h"
#include "device/host_fault.h"

namespace winnow::device {
namespace {

using test::expect_error;

std::vector<float> count_up(std::size_t n, float first = 0) {
  std::vector<float> numbers(n);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

template <class T>
std::vector<T> downloaded(Device& device, const void* from, std::size_t n) {
  std::vector<T> numbers(n);
  device.download(numbers.data(), from, n * sizeof(T));
  return numbers;
}

void upload(Device& device, void* to, const std::vector<float>& numbers) {
  device.upload(to, numbers.data(), numbers.size() * sizeof(float));
}

// A graph of out = a + b, of n numbers in the device's memory.
class Sum {
 public:
  Sum(const Buffer& a, const Buffer& b, const Buffer& out, std::int64_t n) {
    context_.reset(ggml_init(
        {.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    const auto tensor = [&](const Buffer& buffer) {
      ggml_tensor* made = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, n);
      made->data = buffer.data();
      made->buffer = buffer.buffer();
      return made;
    };
    ggml_tensor* sum = ggml_add(context_.get(), tensor(a), tensor(b));
    sum->data = out.data();
    sum->buffer = out.buffer();
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, sum);
  }

  ggml_cgraph* graph() { return graph_; }

 private:
  ggml_context_ptr context_;
  ggml_cgraph* graph_;
};

TEST(HostDeviceTest, IsOpenedByItsNameWhereItIsLinked) {
  const std::shared_ptr<Device> device = open_device("host");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->info().id, "host");
}

TEST(HostDeviceTest, BytesComeBack) {
  const std::shared_ptr<Device> device = open_host_device();
  const Buffer buffer = device->allocate(1000 * sizeof(float));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  EXPECT_GE(buffer.bytes(), 1000 * sizeof(float));
  upload(*device, buffer.data(), count_up(1000));
  device->fill_zero(buffer.as<float>() + 10, 5 * sizeof(float));
  device->wait();
  std::vector<float> expected = count_up(1000);
  std::fill_n(expected.begin() + 10, 5, 0.0F);
  EXPECT_EQ(downloaded<float>(*device, buffer.data(), 1000), expected);
}

TEST(HostDeviceTest, TheProcessorCannotTouchItsMemory) {
  const std::shared_ptr<Device> device = open_host_device();
  const Buffer buffer = device->allocate(64);
  upload(*device, buffer.data(), count_up(16));
  volatile float* const numbers = buffer.as<float>();
  EXPECT_DEATH(static_cast<void>(numbers[3]), "");
  EXPECT_DEATH(numbers[3] = 1, "");
  std::byte* const block = device->memory()->allocate(64);
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile std::byte*>(block)), "");
  EXPECT_FALSE(device->memory()->is_host());
  device->memory()->free(block, 64);
}

TEST(HostDeviceTest, WhatWasNotWrittenIsNoNumber) {
  const std::shared_ptr<Device> device = open_host_device();
  for (int i = 0; i < 2; ++i) {  // also in a block that was used before
    const Buffer buffer = device->allocate(8 * sizeof(float));
    for (const float x : downloaded<float>(*device, buffer.data(), 8)) EXPECT_TRUE(std::isnan(x));
    upload(*device, buffer.data(), count_up(8));
  }
}

TEST(HostDeviceTest, ABufferGivesItsBytesBack) {
  const std::shared_ptr<Device> device = open_host_device();
  const std::size_t before = device->bytes_free();
  Buffer first = device->allocate(1 << 20);
  EXPECT_LE(device->bytes_free(), before - (1 << 20));
  Buffer second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  second = Buffer();
  EXPECT_EQ(device->bytes_free(), before);
}

TEST(HostDeviceTest, WhatDoesNotFitIsRefusedWithWhatIsFree) {
  const std::shared_ptr<Device> device = open_host_device({.bytes = 1 << 20});
  const Buffer most = device->allocate(1 << 19);
  expect_error(ErrorCode::kOutOfMemory, "are free", [&] { device->allocate(1 << 20); });
  expect_error(ErrorCode::kOutOfMemory, "are free", [&] { device->memory()->allocate(1 << 20); });
  EXPECT_NO_THROW(device->allocate(1 << 18));
}

TEST(HostDeviceTest, CopiesReadAllBeforeTheyWrite) {
  const std::shared_ptr<Device> device = open_host_device();
  const std::shared_ptr<EntryMemory> memory = device->memory();
  std::byte* const block = memory->allocate(4 * sizeof(float));
  const std::vector<float> numbers{1, 2, 3, 4};
  memory->write(block, numbers.data(), sizeof(float) * 4);
  std::vector<ByteCopy> swaps;
  for (std::size_t i = 0; i < 4; ++i) swaps.push_back({block + 4 * i, block + 4 * (3 - i), 4});
  memory->copy(swaps);
  std::vector<float> read(4);
  memory->read(read.data(), block, sizeof(float) * 4);
  EXPECT_EQ(read, (std::vector<float>{4, 3, 2, 1}));
  memory->give_back(block, 4 * sizeof(float));
  memory->free(block, 4 * sizeof(float));
}

// Work that is queued before join() meets no numbers, so that a wait that was forgotten is seen.
TEST(HostDeviceTest, UploadsBesideTheQueueAreThereWhenTheyAreJoined) {
  const std::shared_ptr<Device> device = open_host_device(HostDeviceOptions{});
  const Buffer buffer = device->allocate(64 * sizeof(float));
  const std::vector<float> before = count_up(64), after = count_up(32, 1000);
  upload(*device, buffer.data(), before);
  const auto begin = [&] {
    return device->upload_beside({{.to = buffer.data(),
                                   .from = reinterpret_cast<const std::byte*>(after.data()),
                                   .bytes = after.size() * sizeof(float)}});
  };
  std::unique_ptr<SideUpload> upload = begin();
  const std::vector<float> meanwhile = downloaded<float>(*device, buffer.data(), 64);
  EXPECT_TRUE(std::all_of(meanwhile.begin(), meanwhile.begin() + 32, [](float x) { return std::isnan(x); }));
  upload->join();
  std::vector<float> expected = after;
  expected.insert(expected.end(), before.begin() + 32, before.end());
  EXPECT_EQ(downloaded<float>(*device, buffer.data(), 64), expected);

  upload = begin();
  const HostFault fault(HostFault::Kind::kLost, 1);
  expect_error(ErrorCode::kInternal, "lost", [&] { upload->join(); });
}

TEST(HostDeviceTest, AGraphComputesInItsMemory) {
  const std::shared_ptr<Device> device = open_host_device();
  const Buffer a = device->allocate(400), b = device->allocate(400), out = device->allocate(400);
  upload(*device, a.data(), count_up(100));
  upload(*device, b.data(), count_up(100, 1000));
  Sum sum(a, b, out, 100);
  device->compute(sum.graph(), 0, ggml_graph_n_nodes(sum.graph()));
  EXPECT_EQ(downloaded<float>(*device, out.data(), 100)[99], 99 + 1099);
}

TEST(HostDeviceTest, ARecordingRunsWhenItIsReplayed) {
  const std::shared_ptr<Device> device = open_host_device();
  const Buffer a = device->allocate(400), b = device->allocate(400), out = device->allocate(400);
  for (const Buffer* buffer : {&a, &b}) upload(*device, buffer->data(), count_up(100));
  device->fill_zero(out.data(), 400);
  Sum sum(a, b, out, 100);
  const std::unique_ptr<Recording> recording = device->record([&] {
    device->compute(sum.graph(), 0, ggml_graph_n_nodes(sum.graph()));
    device->fill_zero(b.data(), 4);
  });
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(downloaded<float>(*device, out.data(), 100)[7], 0);
  upload(*device, b.data(), count_up(100, 5));
  recording->replay();
  EXPECT_EQ(downloaded<float>(*device, out.data(), 100)[7], 7 + 12);
  EXPECT_EQ(downloaded<float>(*device, b.data(), 100)[0], 0);
}

TEST(HostDeviceTest, ARecordingNeitherUploadsNorWaits) {
  const std::shared_ptr<Device> device = open_host_device();
  const Buffer a = device->allocate(4);
  float number = 1;
  expect_error(ErrorCode::kInternal, "an upload",
               [&] { device->record([&] { device->upload(a.data(), &number, 4); }); });
  expect_error(ErrorCode::kInternal, "a wait", [&] { device->record([&] { device->wait(); }); });
  EXPECT_NO_THROW(device->upload(a.data(), &number, 4));
}

TEST(HostDeviceTest, WeightsBecomeBf16) {
  const std::shared_ptr<Device> device = open_host_device();
  constexpr std::int64_t kNumbers = 3 * 4096 + 64;
  std::vector<float> numbers(kNumbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i));
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    std::vector<std::byte> rows(ggml_row_size(type, kNumbers));
    ggml_quantize_chunk(type, numbers.data(), rows.data(), 0, 1, kNumbers, nullptr);
    const Buffer from = device->allocate(rows.size()), to = device->allocate(2 * kNumbers);
    device->upload(from.data(), rows.data(), rows.size());
    device->dequantise_bf16(type, from.data(), to.data(), kNumbers);
    const auto bf16 = downloaded<ggml_bf16_t>(*device, to.data(), kNumbers);
    std::vector<float> expected = numbers;
    if (type != GGML_TYPE_F32) ggml_get_type_traits(type)->to_float(rows.data(), expected.data(), kNumbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(ggml_bf16_to_fp32(bf16[i]), ggml_bf16_to_fp32(ggml_fp32_to_bf16(expected[i])))
          << ggml_type_name(type) << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace winnow::device
