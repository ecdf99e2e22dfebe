#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "engine/engine_impl.h"
#include "kernels/isa.h"
#include "kernels/quantised_product.h"
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

std::optional<PackedType> packed_type(PrefillWeights weights) {
  if (weights == PrefillWeights::kBf16) return PackedType::kBF16;
  if (weights == PrefillWeights::kF32) return PackedType::kF32;
  return std::nullopt;
}

std::vector<Rotation> rotations_of(const Model::Impl& model) {
  std::vector<Rotation> rotations;
  for (std::size_t l = 0; l < model.spec.layers.size(); ++l) {
    rotations.push_back(rotation_of(model.spec.layers[l].rope, model.weights.layers[l]));
  }
  return rotations;
}

}  // namespace

PrefillWeights parse_prefill_weights(std::string_view name) {
  if (name == "auto") return PrefillWeights::kAuto;
  if (name == "as-is") return PrefillWeights::kAsIs;
  if (name == "int8") return PrefillWeights::kInt8;
  if (name == "bf16") return PrefillWeights::kBf16;
  if (name == "f32") return PrefillWeights::kF32;
  throw Error(ErrorCode::kInvalidArgument, "the weights of the prefill can be auto, as-is, int8, bf16 or f32, not '" +
                                               std::string(name.substr(0, 32)) + "'");
}

Engine::Impl::Impl(std::shared_ptr<const Model> the_model, const EngineOptions& the_options)
    : model(std::move(the_model)),
      options(checked(the_options)),
      pool(PagePool::create(options.kv_bytes_limit)),
      rotations(rotations_of(model->impl())),
      compute(options.n_threads),
      packed(packed_type(options.prefill_weights)),
      layer_graph(2 * kGraphNodesPerLayer) {
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
  layer_graph.reset();
  ggml_context* context = layer_graph.context();
  ggml_tensor* x = layer_graph.external(GGML_TYPE_F32, m.spec.n_embd, n_rows, hidden);
  ggml_tensor* norm = ggml_mul(context, ggml_rms_norm(context, x, m.spec.norm_eps), m.weights.output_norm);
  QuantisedRows rows;
  ggml_tensor* y = stored_product(context, m.weights.output, norm, compute, ProductRows::kFew, rows);
  ggml_set_output(y);
  layer_graph.expand(y);
  layer_graph.allocate();
  note_graph_bytes();
  compute.run(layer_graph);
  std::memcpy(out, y->data, ggml_nbytes(y));
}

StepGraph& Engine::Impl::step_graph(int n_sequences) {
  if (!last_step || last_step->positions.size() != static_cast<std::size_t>(n_sequences)) {
    last_step.reset();
    last_step = std::make_unique<StepGraph>(model->impl(), n_sequences, compute);
  }
  return *last_step;
}

void Engine::Impl::drop_step_graph() {
  last_step.reset();
  note_graph_bytes();
}

void Engine::Impl::note_graph_bytes() { graph_bytes = layer_graph.bytes() + (last_step ? last_step->bytes() : 0); }

ParallelFor Engine::Impl::parallel_for() {
  return [this](int n_items, const std::function<void(int)>& body) { compute.parallel_for(n_items, body); };
}

std::shared_ptr<Engine> Engine::create(std::shared_ptr<const Model> model, const EngineOptions& options) {
  return std::shared_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(model), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

const std::shared_ptr<const Model>& Engine::model() const { return impl_->model; }
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

Session Engine::open(const SessionOptions& options) {
  return Session(std::make_unique<Session::Impl>(shared_from_this(), options));
}

void Engine::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument, "a step needs one token for each of its sessions");
  }
  const std::lock_guard lock(impl_->mutex);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const Session::Impl& session = sessions[i]->impl();
    if (session.engine.get() != this) {
      throw Error(ErrorCode::kInvalidArgument, "a session of another engine cannot be in this step");
    }
    if (std::count(sessions.begin(), sessions.end(), sessions[i]) > 1) {
      throw Error(ErrorCode::kInvalidArgument, "a session can be in a step only once");
    }
    session.check_idle();
    session.check_tokens(tokens.subspan(i, 1));
    session.check_cut_after_decode();
  }

  const auto n_vocab = static_cast<std::size_t>(impl_->model->impl().spec.n_vocab);
  StepGraph& step = impl_->step_graph(static_cast<int>(sessions.size()));
  const auto start = std::chrono::steady_clock::now();
  std::vector<StepSequence> sequences;
  const auto undo = [&] {
    for (std::size_t i = 0; i < sessions.size(); ++i)
      sessions[i]->impl().cache.truncate(sessions[i]->impl().n_tokens());
  };
  try {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      Session::Impl& session = sessions[i]->impl();
      session.reserve_step();
      const std::int32_t position = session.n_tokens();
      session.cache.extend_all(1, position);
      sequences.push_back({.cache = &session.cache, .evidence = &session.evidence, .position = position});
      step.positions[i] = position;
    }
    impl_->embed(tokens, step.hidden.data());
    step.attention.plan(sequences);
    impl_->note_graph_bytes();
    impl_->compute.run(step.graph);
  } catch (...) {
    undo();
    throw;
  }
  // All of them are recorded before any is cut: a cut that fails must not leave half a step behind.
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::span rows(static_cast<const float*>(step.logits->data), sessions.size() * n_vocab);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    sessions[i]->impl().record_step(tokens[i], rows.subspan(i * n_vocab, n_vocab), seconds.count());
  }
  std::vector<CutError::Failure> failures;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    try {
      sessions[i]->impl().cut_after_decode();
    } catch (const Error& error) {
      failures.push_back({.session = i, .code = error.code(), .message = error.what()});
    } catch (const std::exception& error) {
      failures.push_back({.session = i, .code = ErrorCode::kInternal, .message = error.what()});
    }
  }
  if (!failures.empty()) throw CutError(std::move(failures));
}

CutError::CutError(std::vector<Failure> the_failures)
    : Error(the_failures.at(0).code,
            "the token was decoded, but the cache could not be cut after it: " + the_failures.at(0).message),
      failures(std::move(the_failures)) {}

}  // namespace winnow
