#include "device/host_device.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "device/host_fault.h"
#include "device/kernels/host_kernels.h"
#include "device/protected_memory.h"
#include "winnow/error.h"

namespace winnow::device {
namespace {

using Work = std::function<void()>;

void multiply_rows(const Product& plan) {
  const auto n_in = static_cast<std::size_t>(plan.n_in), n_out = static_cast<std::size_t>(plan.n_out);
  std::vector<float> x(n_in), w(n_in * n_out);
  ggml_bf16_to_fp32_row(static_cast<const ggml_bf16_t*>(plan.weight), w.data(), static_cast<std::int64_t>(w.size()));
  for (std::size_t r = 0; r < static_cast<std::size_t>(plan.n_rows); ++r) {
    ggml_bf16_to_fp32_row(static_cast<const ggml_bf16_t*>(plan.x) + r * n_in, x.data(), plan.n_in);
    for (std::size_t o = 0; o < n_out; ++o) {
      float& y = plan.y[r * n_out + o];
      y = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(o * n_in),
                             plan.adds ? y : 0.0F);
    }
  }
}

// A graph of some consecutive nodes of another graph.
class Part {
 public:
  Part(ggml_cgraph* whole, int first, int last) {
    const auto n = static_cast<std::size_t>(last - first);
    ggml_init_params params{};
    params.mem_size = ggml_graph_overhead_custom(n, false) + ggml_tensor_overhead();
    context_.reset(ggml_init(params));
    graph_ = ggml_new_graph_custom(context_.get(), n, false);
    for (int i = first; i < last; ++i) ggml_graph_add_node(graph_, ggml_graph_node(whole, i));
  }
  ggml_cgraph* graph() const { return graph_; }

 private:
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : memory_(std::make_shared<ProtectedMemory>(options.bytes)), backend_(ggml_backend_cpu_init()) {
    if (backend_ == nullptr) throw Error(ErrorCode::kInternal, "ggml has no CPU back end");
    ggml_backend_cpu_set_n_threads(backend_.get(), options.n_threads);
    info_ = {.id = "host",
             .name = "the test device",
             .description = "this machine's processor behind protected memory",
             .bytes_total = options.bytes};
  }

  const DeviceInfo& info() const override { return info_; }
  std::size_t bytes_free() const override { return memory_->bytes_free(); }
  ggml_backend* backend() override { return backend_.get(); }

  void compute(ggml_cgraph* graph, int first, int last) override {
    queue_work([this, graph, first, last] {
      const Part part(graph, first, last);
      const ggml_status status = ggml_backend_graph_compute(backend_.get(), part.graph());
      if (status != GGML_STATUS_SUCCESS) {
        throw Error(ErrorCode::kInternal, std::string("ggml's graph failed: ") + ggml_status_to_string(status));
      }
    });
  }

  Buffer allocate(std::size_t bytes) override {
    std::byte* const data = memory_->allocate(bytes);
    std::shared_ptr<void> block(
        data, [memory = memory_, bytes](void* address) { memory->free(static_cast<std::byte*>(address), bytes); });
    ggml_backend_buffer* const buffer = ggml_backend_cpu_buffer_from_ptr(data, bytes);
    if (buffer == nullptr) throw Error(ErrorCode::kOutOfMemory, "ggml made no buffer");
    return Buffer(buffer, data, bytes, std::move(block));
  }
  std::shared_ptr<EntryMemory> memory() override { return memory_; }

  void upload(void* to, const void* from, std::size_t bytes) override {
    require_not_recording("an upload");
    memory_->write(static_cast<std::byte*>(to), from, bytes);
  }
  std::unique_ptr<SideUpload> upload_beside(std::vector<ByteCopy> copies) override {
    require_not_recording("an upload");
    return std::make_unique<LateUpload>(*this, std::move(copies));
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    require_not_recording("a download");
    memory_->read(to, static_cast<const std::byte*>(from), bytes);
  }
  void fill_zero(void* to, std::size_t bytes) override {
    queue_work([to, bytes] { std::memset(to, 0, bytes); });
  }
  void wait() override {
    require_not_recording("a wait");
    HostFault::before_work();
  }

  void queue(const KernelPlan& plan) override {
    queue_work([plan] {
      simt::Queue queue;
      fibers::run(queue, plan);
    });
  }
  void multiply(const Product& plan) override {
    queue_work([plan] { multiply_rows(plan); });
  }

  void dequantise_bf16(int type, const void* from, void* to, std::int64_t n) override {
    const auto ggml = static_cast<ggml_type>(type);
    const ggml_type_traits* traits = ggml_get_type_traits(ggml);
    if (ggml != GGML_TYPE_F32 && traits->to_float == nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  std::string("the test device does not convert ") + ggml_type_name(ggml) + " to bf16");
    }
    queue_work([=] {
      if (ggml == GGML_TYPE_F32) {
        ggml_fp32_to_bf16_row(static_cast<const float*>(from), static_cast<ggml_bf16_t*>(to), n);
        return;
      }
      constexpr std::int64_t kAtOnce = 4096;  // a multiple of every block size
      std::vector<float> row(static_cast<std::size_t>(std::min(n, kAtOnce)));
      for (std::int64_t i = 0; i < n; i += kAtOnce) {
        const std::int64_t count = std::min(kAtOnce, n - i);
        traits->to_float(static_cast<const std::byte*>(from) + ggml_row_size(ggml, i), row.data(), count);
        ggml_fp32_to_bf16_row(row.data(), static_cast<ggml_bf16_t*>(to) + i, count);
      }
    });
  }

  std::unique_ptr<Recording> record(const Work& work) override {
    require_not_recording("a recording");
    std::vector<Work> recorded;
    recording_ = &recorded;
    try {
      work();
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    return std::make_unique<WorkList>(*this, std::move(recorded));
  }

 private:
  class WorkList final : public Recording {
   public:
    WorkList(HostDevice& device, std::vector<Work> works) : device_(device), works_(std::move(works)) {}
    void replay() override {
      for (const Work& work : works_) device_.queue_work(work);
    }

   private:
    HostDevice& device_;
    std::vector<Work> works_;
  };

  // Copies as late as an upload beside the queue may: until then the places hold what no work may meet.
  class LateUpload final : public SideUpload {
   public:
    LateUpload(HostDevice& device, std::vector<ByteCopy> copies) : device_(device), copies_(std::move(copies)) {
      for (const ByteCopy& copy : copies_) {
        const std::vector<unsigned char> garbage(copy.bytes, 0xff);  // NaN in every type of float
        device_.memory_->write(copy.to, garbage.data(), copy.bytes);
      }
    }
    void join() override {
      device_.require_not_recording("a wait for an upload");
      for (const ByteCopy& copy : copies_) device_.memory_->write(copy.to, copy.from, copy.bytes);
    }

   private:
    HostDevice& device_;
    std::vector<ByteCopy> copies_;
  };

  // Runs the work at once, or keeps it while a recording is made.
  void queue_work(Work work) {
    if (recording_ != nullptr) {
      recording_->push_back(std::move(work));
      return;
    }
    HostFault::before_work();
    const ProtectedMemory::Opened opened(*memory_);
    work();
  }

  void require_not_recording(const char* what) const {
    if (recording_ == nullptr) return;
    throw Error(ErrorCode::kInternal, std::string(what) + " was requested within a recording");
  }

  DeviceInfo info_;
  std::shared_ptr<ProtectedMemory> memory_;
  ggml_backend_ptr backend_;
  std::vector<Work>* recording_ = nullptr;
};

}  // namespace

std::shared_ptr<Device> open_host_device(const HostDeviceOptions& options) {
  return std::make_shared<HostDevice>(options);
}

std::shared_ptr<Device> open_host_device(int mib) {
  HostDeviceOptions options;
  if (mib > 0) options.bytes = static_cast<std::size_t>(mib) << 20;
  return open_host_device(options);
}

}  // namespace winnow::device
