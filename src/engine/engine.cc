#include <algorithm>
#include <exception>

#include "base/process_memory.h"
#include "device/devices.h"
#include "engine/cpu/cpu_executor.h"
#include "engine/device/device_executor.h"
#include "engine/engine_impl.h"
#include "engine/ranks/check_ranks.h"
#include "engine/ranks/ranked_calls.h"
#include "engine/ranks/ranked_executor.h"
#include "kernels/products/quantised_product.h"
#include "kernels/simd/isa.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Throws Error(kUnsupported) for products that this processor does not make.
void check_prefill_weights(PrefillWeights weights) {
  if (weights == PrefillWeights::kBf16 && !multiplies_bf16()) {
    throw Error(ErrorCode::kUnsupported,
                "this processor does not multiply bf16, or DNNL_MAX_CPU_ISA keeps oneDNN from doing so: prefill with "
                "weights auto, as-is, int8 or f32");
  }
  if (weights == PrefillWeights::kInt8 && !kernels::has_quantised_products()) {
    throw Error(
        ErrorCode::kUnsupported,
        "this processor has none of the instructions for 8-bit products (AVX2, AVX512-VNNI): prefill with weights "
        "auto, as-is or f32");
  }
}

// Returns the options with what they leave open. device: that they name; null: the processor.
EngineOptions checked(EngineOptions options, const device::Device* device) {
  kernels::use_environment_isa();
  if (options.n_threads < 0 || options.n_threads > EngineOptions::kMostThreads) {
    throw Error(ErrorCode::kInvalidArgument,
                "the number of threads must be between 1 and 512 (0: the machine's cores), not " +
                    std::to_string(options.n_threads));
  }
  if (options.n_batch < 0 || options.n_batch > EngineOptions::kMostBatch) {
    throw Error(ErrorCode::kInvalidArgument,
                "the batch size must be between 1 and 65536 tokens (0: 512, on a GPU 2,048), not " +
                    std::to_string(options.n_batch));
  }
  if (device != nullptr) {
    check_device_engine(options, device->info().id);
  } else {
    check_prefill_weights(options.prefill_weights);
  }
  if (!(options.kv_limit_share >= 0 && options.kv_limit_share <= 1)) {
    throw Error(ErrorCode::kInvalidArgument, "the share of the free memory for KV pages must be between 0 and 1, not " +
                                                 std::to_string(options.kv_limit_share));
  }
  if (options.device_layers < -1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the layers that stay on a device must be 0 or more (-1: as many as fit), not " +
                    std::to_string(options.device_layers));
  }
  if (options.device_layers > 0 && options.device == "cpu") {
    throw Error(ErrorCode::kInvalidArgument,
                "layers that stay on a device (-ngl) need one: add --device cuda, or leave them out");
  }
  if (options.n_threads == 0) options.n_threads = default_thread_count();
  if (options.n_batch == 0) options.n_batch = device == nullptr ? 512 : 2048;
  options.device = device == nullptr ? "cpu" : device->info().id;
  return options;
}

std::vector<Rotation> rotations_of(const Model::Impl& model) {
  std::vector<Rotation> rotations;
  for (std::size_t l = 0; l < model.spec.layers.size(); ++l) {
    rotations.push_back(rotation_of(model.spec.layers[l].rope, model.weights.layers[l]));
  }
  return rotations;
}

std::unique_ptr<EngineCalls> make_calls(const Pipeline& pipeline, const EngineOptions& options) {
  if (pipeline.n_ranks() == 1) return std::make_unique<EngineCalls>();
  return std::make_unique<RankedCalls>(pipeline, options.is_led);
}

// Returns the device that the options name, which must be able to compute the model; null: the processor.
std::shared_ptr<device::Device> open_device(const Model::Impl& model, const EngineOptions& options) {
  std::shared_ptr<device::Device> device = device::open_device(options.device);
  if (device == nullptr) return nullptr;
  if (options.pipeline != nullptr) {
    throw Error(ErrorCode::kUnsupported, "ranks that share a model compute on the CPU only: use the device cpu");
  }
  check_device_model(model);
  return device;
}

FreeMemory free_memory_of(const device::Device* device) {
  if (device == nullptr) return {.bytes_total = memory_total(), .bytes_free = memory_available()};
  return {.bytes_total = device->info().bytes_total, .bytes_free = device->bytes_free()};
}

// Returns the limit of the page pool; called once the device has the weights.
std::size_t kv_limit_of(const EngineOptions& options, const device::Device* device) {
  if (options.kv_bytes_limit > 0 || options.kv_limit_share == 0) return options.kv_bytes_limit;
  const auto free = static_cast<double>(free_memory_of(device).bytes_free);
  return std::max(static_cast<std::size_t>(options.kv_limit_share * free), std::size_t{1});
}

std::shared_ptr<PagePool> make_pool(std::size_t limit, const std::shared_ptr<device::Device>& device) {
  return device == nullptr ? PagePool::create(limit) : PagePool::create(limit, device->memory());
}

std::unique_ptr<Executor> make_executor(const Model::Impl& model, const EngineOptions& options,
                                        std::shared_ptr<device::Device> device, const Pipeline& pipeline) {
  model.balance(pipeline.layers().first, pipeline.layers().last);
  if (device != nullptr) return std::make_unique<DeviceExecutor>(model, std::move(device), options);
  auto own = std::make_unique<CpuExecutor>(model, pipeline.layers(), options, pipeline.n_ranks());
  if (pipeline.n_ranks() == 1) return own;
  return std::make_unique<RankedExecutor>(std::move(own), pipeline, model.spec);
}

}  // namespace

PrefillWeights parse_prefill_weights(std::string_view name) {
  if (name == "auto") return PrefillWeights::kAuto;
  if (name == "as-is") return PrefillWeights::kAsIs;
  if (name == "int8") return PrefillWeights::kInt8;
  if (name == "float") return PrefillWeights::kFloat;
  if (name == "bf16") return PrefillWeights::kBf16;
  if (name == "f32") return PrefillWeights::kF32;
  throw Error(ErrorCode::kInvalidArgument,
              "the weights of the prefill can be auto, as-is, int8, float, bf16 or f32, not '" +
                  std::string(name.substr(0, 32)) + "'");
}

Engine::Impl::Impl(std::shared_ptr<const Model> the_model, const EngineOptions& the_options)
    : model(std::move(the_model)),
      device(open_device(model->impl(), the_options)),
      options(checked(the_options, device.get())),
      pipeline(options.pipeline, layer_ranges(model->impl(), options)),
      calls(make_calls(pipeline, options)),
      layers(pipeline.layers()),
      rotations(rotations_of(model->impl())),
      executor(make_executor(model->impl(), options, device, pipeline)),
      kv_bytes_limit(kv_limit_of(options, device.get())),
      pool(make_pool(kv_bytes_limit, device)) {
  most_threads = check_ranks(pipeline, model->impl(), options);
  if (device == nullptr) model->impl().interleave(layers.first, layers.last, pipeline.is_last(), options.n_threads);
}

void Engine::Impl::check_sessions(std::span<Session* const> sessions) const {
  for (auto session = sessions.begin(); session != sessions.end(); ++session) {
    if (*session == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "one of the sessions is null: give sessions that are open");
    }
    if (&(*session)->impl().engine_impl() != this) {
      throw Error(ErrorCode::kInvalidArgument, "a session belongs to another engine: give sessions of one engine");
    }
    if (std::find(sessions.begin(), session, *session) != session) {
      throw Error(ErrorCode::kInvalidArgument, "a session is given twice: give each session once");
    }
    (*session)->impl().check_idle();
  }
}

void Engine::Impl::rest() {
  const std::lock_guard lock(mutex);
  calls->rest(*this);
}

void Engine::Impl::release_step() {
  const std::lock_guard lock(mutex);
  executor->release_step();
}

std::shared_ptr<Engine> Engine::create(std::shared_ptr<const Model> model, const EngineOptions& options) {
  return std::shared_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(model), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  try {
    impl_->calls->end();
  } catch (const std::exception&) {  // the others have ended already
  }
}

const std::shared_ptr<const Model>& Engine::model() const { return impl_->model; }
int Engine::n_batch() const { return impl_->options.n_batch; }
int Engine::n_threads() const { return impl_->options.n_threads; }
const std::string& Engine::device() const { return impl_->options.device; }
int Engine::n_streamed_layers() const { return impl_->executor->n_streamed_layers(); }
void Engine::reset_peak() { impl_->pool->reset_peak(); }

MemoryStatistics Engine::memory() const {
  const PoolStatistics pool = impl_->pool->statistics();
  return {.kv_bytes_in_use = pool.bytes_in_use + pool.bytes_reserved,
          .kv_bytes_peak = pool.bytes_peak,
          .kv_bytes_resident = pool.bytes_resident + pool.bytes_reserved,
          .kv_bytes_limit = pool.bytes_limit,
          .graph_bytes = impl_->executor->bytes()};
}

FreeMemory Engine::free_memory() const {
  const std::lock_guard lock(impl_->mutex);
  return free_memory_of(impl_->device.get());
}

std::vector<RankMemory> Engine::memory_of_ranks() const {
  const std::lock_guard lock(impl_->mutex);
  const RankMemory own{.first_layer = impl_->layers.first,
                       .last_layer = impl_->layers.last,
                       .rss_peak_bytes = rss_peak_bytes(),
                       .kv_bytes_peak = impl_->pool->statistics().bytes_peak};
  return impl_->calls->memory(own);
}

Session Engine::open(const SessionOptions& options) { return Session(impl_->calls->open(shared_from_this(), options)); }

}  // namespace winnow
