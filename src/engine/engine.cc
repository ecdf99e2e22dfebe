#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/process_memory.h"
#include "engine/engine_impl.h"
#include "engine/stored_numbers.h"
#include "engine/stored_options.h"
#include "kernels/products/quantised_product.h"
#include "kernels/simd/isa.h"
#include "model/stored_product.h"
#include "winnow/error.h"

namespace winnow {
namespace {

EngineOptions checked(EngineOptions options) {
  kernels::use_environment_isa();
  if (options.n_threads < 0 || options.n_threads > 512) {
    throw Error(ErrorCode::kInvalidArgument,
                "the number of threads must be between 1 and 512 (0: the machine's cores), not " +
                    std::to_string(options.n_threads));
  }
  if (options.n_batch < 1 || options.n_batch > 65536) {
    throw Error(ErrorCode::kInvalidArgument,
                "the batch size must be between 1 and 65536 tokens, not " + std::to_string(options.n_batch));
  }
  if (options.prefill_weights == PrefillWeights::kBf16 && !multiplies_bf16()) {
    throw Error(ErrorCode::kUnsupported,
                "this processor does not multiply bf16, or DNNL_MAX_CPU_ISA keeps oneDNN from it: prefill with weights "
                "auto, as-is, int8 or f32");
  }
  if (options.prefill_weights == PrefillWeights::kInt8 && !kernels::has_quantised_products()) {
    throw Error(
        ErrorCode::kUnsupported,
        "this processor has none of the instructions for 8-bit products (AVX2, AVX512-VNNI): prefill with weights "
        "auto, as-is or f32");
  }
  if (options.n_threads == 0) options.n_threads = default_thread_count();
  return options;
}

std::vector<LayerRange> ranges_of(const Model::Impl& model, const EngineOptions& options) {
  const int n_ranks = options.pipeline ? options.pipeline->n_ranks() : 1;
  return split_layers(model.spec, model.file, n_ranks, options.pipeline_layers);
}

// What every rank has to have alike.
// Returns the threads of the rank that has most.
int check_ranks(const Pipeline& pipeline, const Model::Impl& model, const EngineOptions& options) {
  if (!pipeline.is_split()) return options.n_threads;
  std::vector<std::uint64_t> own = {model.info.fingerprint, static_cast<std::uint64_t>(options.n_batch),
                                    static_cast<std::uint64_t>(options.prefill_weights),
                                    static_cast<std::uint64_t>(options.is_led)};
  for (const LayerRange& range : pipeline.ranges()) own.push_back(static_cast<std::uint64_t>(range.first));
  return pipeline.together([&] {
    const std::span<const std::byte> bytes = std::as_bytes(std::span<const std::uint64_t>(own));
    const std::vector<std::vector<std::byte>> all = pipeline.gather(bytes);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (std::equal(all[rank].begin(), all[rank].end(), bytes.begin(), bytes.end())) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank) + " has another model, or other flags, than rank " +
                      std::to_string(pipeline.rank()) + ": start all of them with the same ones");
    }
    int most = 0;
    for (const std::vector<std::byte>& message : pipeline.gather(std::as_bytes(std::span(&options.n_threads, 1)))) {
      most = std::max(most, numbers_in<int>(message).at(0));
    }
    return most;
  });
}

std::vector<Rotation> rotations_of(const Model::Impl& model) {
  std::vector<Rotation> rotations;
  for (std::size_t l = 0; l < model.spec.layers.size(); ++l) {
    rotations.push_back(rotation_of(model.spec.layers[l].rope, model.weights.layers[l]));
  }
  return rotations;
}

// What `make` builds of rows of hidden states, into `out`.
void compute_rows(Engine::Impl& engine, float* hidden, int n_rows, float* out,
                  const std::function<ggml_tensor*(GraphBuilder&, ggml_tensor*)>& make, std::int64_t width) {
  const std::span rows(out, static_cast<std::size_t>(n_rows * width));
  if (!engine.pipeline.is_last()) return engine.pipeline.share_output(rows);
  Graph& graph = engine.layer_graph;
  graph.reset();
  ggml_tensor* x = graph.external(GGML_TYPE_F32, engine.model->impl().spec.n_embd, n_rows, hidden);
  GraphBuilder builder(graph.context(), engine.compute);
  ggml_tensor* y = make(builder, x);
  ggml_set_output(y);
  graph.expand(y);
  graph.allocate();
  engine.note_graph_bytes();
  engine.compute.run(graph);
  std::memcpy(out, y->data, rows.size_bytes());
  engine.pipeline.share_output(rows);
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
      options(checked(the_options)),
      pool(PagePool::create(options.kv_bytes_limit)),
      pipeline(options.pipeline, ranges_of(model->impl(), options)),
      leader(pipeline, options.is_led),
      layers(pipeline.layers()),
      rotations(rotations_of(model->impl())),
      compute(options.n_threads),
      converted(options.prefill_weights),
      layer_graph(2 * kGraphNodesPerLayer) {
  most_threads = check_ranks(pipeline, model->impl(), options);
  model->impl().interleave(layers.first, layers.last, pipeline.is_last(), options.n_threads);
  note_graph_bytes();
}

void Engine::Impl::embed(std::span<const Token> tokens, float* hidden) {
  const ModelSpec& spec = model->impl().spec;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    float* row = hidden + i * static_cast<std::size_t>(spec.n_embd);
    dequantize_row(model->impl().weights.token_embd, tokens[i], row);
    if (spec.embedding_scale != 1) {
      std::for_each_n(row, spec.n_embd, [&](float& x) { x *= spec.embedding_scale; });
    }
  }
}

void Engine::Impl::output_logits(float* hidden, int n_rows, float* out) {
  const Model::Impl& m = model->impl();
  compute_rows(
      *this, hidden, n_rows, out,
      [&](GraphBuilder& builder, ggml_tensor* x) { return builder.logits(m.spec, m.weights, x); }, m.spec.n_vocab);
}

void Engine::Impl::output_hidden(float* hidden, int n_rows, float* out) {
  const Model::Impl& m = model->impl();
  compute_rows(
      *this, hidden, n_rows, out,
      [&](GraphBuilder& builder, ggml_tensor* x) { return builder.output_norm(m.spec, m.weights, x); }, m.spec.n_embd);
}

void Engine::Impl::note_graph_bytes() {
  std::size_t bytes = layer_graph.bytes();
  for (const std::unique_ptr<StepGraph>& graph : step_graphs) bytes += graph->bytes();
  graph_bytes = bytes;
}

void Engine::Impl::check_whole(const std::string& what) const {
  if (!pipeline.is_split()) return;
  throw Error(ErrorCode::kUnsupported,
              what + " cannot be made of a model that several ranks hold: start winnow without MPI for it");
}

void Engine::Impl::rest() {
  const std::lock_guard lock(mutex);
  drop_step_graph();
  pool->trim();
  leader.tell(LedCall::kRest);
}

ParallelFor Engine::Impl::parallel_for() {
  return [this](int n_items, const std::function<void(int)>& body) { compute.parallel_for(n_items, body); };
}

std::shared_ptr<Engine> Engine::create(std::shared_ptr<const Model> model, const EngineOptions& options) {
  return std::shared_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(model), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  try {
    impl_->leader.tell(LedCall::kEnd);
  } catch (const std::exception&) {  // the others have ended already
  }
}

const std::shared_ptr<const Model>& Engine::model() const { return impl_->model; }
std::pair<int, int> Engine::layers() const { return {impl_->layers.first, impl_->layers.last}; }
int Engine::n_threads() const { return impl_->options.n_threads; }
void Engine::reset_peak() { impl_->pool->reset_peak(); }

MemoryStatistics Engine::memory() const {
  const PoolStatistics pool = impl_->pool->statistics();
  return {.kv_bytes_in_use = pool.bytes_in_use + pool.bytes_reserved,
          .kv_bytes_peak = pool.bytes_peak,
          .kv_bytes_resident = pool.bytes_resident + pool.bytes_reserved,
          .kv_bytes_limit = pool.bytes_limit,
          .graph_bytes = impl_->graph_bytes};
}

std::vector<RankMemory> Engine::memory_of_ranks() const {
  const std::lock_guard lock(impl_->mutex);
  const RankMemory own{.first_layer = impl_->layers.first,
                       .last_layer = impl_->layers.last,
                       .rss_peak_bytes = rss_peak_bytes(),
                       .kv_bytes_peak = impl_->pool->statistics().bytes_peak};
  const Pipeline& pipeline = impl_->pipeline;
  if (!pipeline.is_split()) return {own};
  impl_->leader.tell(LedCall::kMemory);
  return pipeline.together([&] {
    std::vector<RankMemory> all;
    for (const std::vector<std::byte>& message : pipeline.gather(std::as_bytes(std::span(&own, 1)))) {
      all.push_back(numbers_in<RankMemory>(message).at(0));
    }
    return all;
  });
}

Session Engine::open(const SessionOptions& options) {
  auto session = std::make_unique<Session::Impl>(shared_from_this(), options);
  if (impl_->leader.leads()) {
    const std::lock_guard lock(impl_->mutex);
    session->number = impl_->leader.new_number();
    impl_->leader.tell(LedCall::kOpen, [&](std::ostream& out) {
      put(out, session->number);
      put_options(out, session->options);
      if (session->options.budget) put(out, session->options.budget->amount);
    });
  }
  return Session(std::move(session));
}

}  // namespace winnow
