#include "device/cuda/cuda_device.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <ggml-cpp.h>
#include <ggml-cuda.h>

#include <algorithm>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/cuda_side_uploads.h"
#include "winnow/error.h"

namespace winnow::device {
namespace {

constexpr int kOldestCapability = 80;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Returns the number of devices; if it is 0, `missing` says why.
int count_devices(std::string& missing) {
  missing.clear();
  int n = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaSuccess && n > 0) return n;
  static_cast<void>(cudaGetLastError());
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::string words = status == cudaSuccess ? "no device" : cudaGetErrorString(status);
  if (status == cudaErrorInsufficientDriver && driver > 0) {
    missing = "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
              ", but the plugin needs CUDA " + version_text(runtime) + " (" + words +
              "): install a newer driver, or build the plugin with an older CUDA";
  } else if (status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary) {
    missing = "this machine has no NVIDIA driver (" + words + "): install it, or compute with the cpu";
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    missing = "the driver shows no NVIDIA GPU on this machine (" + words +
              "; CUDA_VISIBLE_DEVICES can hide some): compute with the cpu";
  } else {
    missing = "the NVIDIA driver does not list its GPUs (" + words + "): `nvidia-smi` may say more";
  }
  return 0;
}

std::string capability_text(const cudaDeviceProp& properties) {
  return std::to_string(properties.major) + "." + std::to_string(properties.minor);
}

bool is_old(const cudaDeviceProp& properties) { return 10 * properties.major + properties.minor < kOldestCapability; }

DeviceInfo info_of(int index, const cudaDeviceProp& properties) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return {.id = "cuda:" + std::to_string(index),
          .name = properties.name,
          .description = "compute capability " + capability_text(properties) + ", " +
                         std::to_string(properties.multiProcessorCount) + " multiprocessors, driver of CUDA " +
                         version_text(driver),
          .bytes_total = properties.totalGlobalMem};
}

std::string too_old(int index, const cudaDeviceProp& properties) {
  return "cuda:" + std::to_string(index) + " (" + properties.name + ") has compute capability " +
         capability_text(properties) + ", but winnow's kernels need 8.0 or higher";
}

void check_opening(cudaError_t status, int index) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kUnsupported,
              "cuda:" + std::to_string(index) + " cannot be opened: " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ")");
}

ggml_backend_ptr make_backend(int index) {
  // winnow records whole steps itself, and ggml must not record within them. ggml reads the variable when it first
  // computes.
  setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 1);
  ggml_backend_ptr backend(ggml_backend_cuda_init(index));
  if (backend == nullptr) {
    throw Error(ErrorCode::kUnsupported, "ggml cannot open cuda:" + std::to_string(index));
  }
  return backend;
}

struct DestroyCublas {
  void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
};
using Cublas = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyCublas>;

Cublas make_cublas(cudaStream_t stream) {
  cublasHandle_t handle = nullptr;
  const cublasStatus_t status = cublasCreate(&handle);
  Cublas cublas(handle);
  if (status != CUBLAS_STATUS_SUCCESS || cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorCode::kUnsupported, std::string("cuBLAS cannot start: ") + cublasGetStatusString(status));
  }
  return cublas;
}

class CudaRecording final : public Recording {
 public:
  CudaRecording(std::shared_ptr<CudaQueue> queue, cudaGraphExec_t graph) : queue_(std::move(queue)), graph_(graph) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override {
    queue_->use();
    cudaGraphExecDestroy(graph_);
  }
  void replay() override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    queue_->check(cudaGraphLaunch(graph_, queue_->stream()), "replaying a recording");
  }

 private:
  std::shared_ptr<CudaQueue> queue_;
  cudaGraphExec_t graph_;
};

class CudaSideUpload final : public SideUpload {
 public:
  CudaSideUpload(std::shared_ptr<CudaSideUploads> uploads, std::vector<ByteCopy> copies)
      : uploads_(std::move(uploads)) {
    uploads_->begin(std::move(copies));
  }
  CudaSideUpload(const CudaSideUpload&) = delete;
  CudaSideUpload& operator=(const CudaSideUpload&) = delete;
  ~CudaSideUpload() override {
    if (!is_joined_) uploads_->abandon();
  }
  void join() override {
    is_joined_ = true;
    uploads_->join();
  }

 private:
  std::shared_ptr<CudaSideUploads> uploads_;
  bool is_joined_ = false;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, DeviceInfo info)
      : info_(std::move(info)),
        backend_(make_backend(index)),
        queue_(std::make_shared<CudaQueue>(index, stream_of(backend_.get()))),
        memory_(std::make_shared<CudaMemory>(queue_)),
        cublas_(make_cublas(queue_->stream())) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override {
    queue_->use();
    cudaStreamSynchronize(queue_->stream());
  }

  const DeviceInfo& info() const override { return info_; }
  std::size_t bytes_free() const override {
    queue_->use();
    std::size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }
  ggml_backend* backend() override { return backend_.get(); }

  void compute(ggml_cgraph* graph, int first, int last) override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    queue_->check(cudaPeekAtLastError(), "work queued before a graph");  // ggml would abort the program
    const auto status = static_cast<ggml_status>(compute_nodes(backend_.get(), graph, first, last));
    if (status != GGML_STATUS_SUCCESS) {
      throw Error(ErrorCode::kInternal, std::string("ggml's graph failed: ") + ggml_status_to_string(status));
    }
  }

  Buffer allocate(std::size_t bytes) override {
    queue_->use();
    const std::size_t asked = std::max<std::size_t>(bytes, 1);
    ggml_backend_buffer* const buffer =
        ggml_backend_buft_alloc_buffer(ggml_backend_cuda_buffer_type(queue_->device()), asked);
    if (buffer == nullptr) throw_out_of_memory(queue_->device(), bytes);
    return Buffer(buffer, static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer)), bytes);
  }
  std::shared_ptr<EntryMemory> memory() override { return memory_; }

  void upload(void* to, const void* from, std::size_t bytes) override { queue_->upload(to, from, bytes); }
  std::unique_ptr<SideUpload> upload_beside(std::vector<ByteCopy> copies) override {
    if (side_uploads_ == nullptr) side_uploads_ = std::make_shared<CudaSideUploads>(queue_);  // few models need them
    return std::make_unique<CudaSideUpload>(side_uploads_, std::move(copies));
  }
  void download(void* to, const void* from, std::size_t bytes) override { queue_->download(to, from, bytes); }
  void fill_zero(void* to, std::size_t bytes) override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    queue_->check(cudaMemsetAsync(to, 0, bytes, queue_->stream()), "writing zeros");
  }
  void wait() override { queue_->wait(); }

  void queue(const KernelPlan& plan) override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    queue_->check(launch_kernel(queue_->stream(), plan), kernel_name(plan));
  }
  void multiply(const Product& plan) override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    const float one = 1.0F, other = plan.adds ? 1.0F : 0.0F;
    // cuBLAS stores matrices by columns: W is transposed, and y is [n_out, n_rows].
    const cublasStatus_t status =
        cublasGemmEx(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, plan.n_out, plan.n_rows, plan.n_in, &one, plan.weight,
                     CUDA_R_16BF, plan.n_in, plan.x, CUDA_R_16BF, plan.n_in, &other, plan.y, CUDA_R_32F, plan.n_out,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw Error(ErrorCode::kInternal, std::string("cuBLAS refused a product: ") + cublasGetStatusString(status));
    }
  }

  void dequantise_bf16(int type, const void* from, void* to, std::int64_t n) override {
    const std::lock_guard lock(queue_->mutex());
    queue_->use();
    queue_->check(cudaPeekAtLastError(), "work queued before a conversion");
    if (!convert_to_bf16(queue_->stream(), type, from, to, n)) {
      throw Error(ErrorCode::kUnsupported, std::string("ggml's CUDA back end does not convert ") +
                                               ggml_type_name(static_cast<ggml_type>(type)) + " to bf16");
    }
    queue_->check(cudaPeekAtLastError(), "converting weights");
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    queue_->begin_recording();
    try {
      work();
    } catch (...) {
      queue_->abandon_recording();
      throw;
    }
    return std::make_unique<CudaRecording>(queue_, queue_->end_recording());
  }

 private:
  DeviceInfo info_;
  ggml_backend_ptr backend_;
  std::shared_ptr<CudaQueue> queue_;
  std::shared_ptr<CudaMemory> memory_;
  std::shared_ptr<CudaSideUploads> side_uploads_;
  Cublas cublas_;
};

}  // namespace

std::vector<DeviceInfo> list_cuda_devices(std::string& missing) {
  std::vector<DeviceInfo> devices;
  const int n = count_devices(missing);
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, i); status != cudaSuccess) {
      missing = "cuda:" + std::to_string(i) + " does not answer: " + cudaGetErrorString(status);
    } else if (is_old(properties)) {
      missing = too_old(i, properties);
    } else {
      devices.push_back(info_of(i, properties));
    }
  }
  return devices;
}

std::shared_ptr<Device> open_cuda_device(int index) {
  std::string missing;
  const int n = count_devices(missing);
  if (n == 0) throw Error(ErrorCode::kNotFound, missing);
  if (index >= n) {
    throw Error(
        ErrorCode::kNotFound,
        "there is no cuda:" + std::to_string(index) + ": this machine has " +
            (n == 1 ? "one GPU, cuda:0" : std::to_string(n) + " GPUs, cuda:0 to cuda:" + std::to_string(n - 1)));
  }
  check_opening(cudaSetDevice(index), index);
  cudaDeviceProp properties{};
  check_opening(cudaGetDeviceProperties(&properties, index), index);
  if (is_old(properties)) throw Error(ErrorCode::kUnsupported, too_old(index, properties));
  if (const cudaError_t status = check_kernel_image(); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    const std::string capability = std::to_string(10 * properties.major + properties.minor);
    throw Error(ErrorCode::kUnsupported, "the plugin was not built for cuda:" + std::to_string(index) + " (" +
                                             properties.name + "; " + cudaGetErrorString(status) +
                                             "): `make cuda CUDA_ARCHITECTURES=" + capability +
                                             "` builds it for this GPU");
  }
  return std::make_shared<CudaDevice>(index, info_of(index, properties));
}

}  // namespace winnow::device
