// The executor of this machine's processor: ggml's graphs on ggml's threads, with winnow's kernels between and in them.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/cpu/converted_layer.h"
#include "engine/cpu/step_graph.h"
#include "engine/executor.h"
#include "model/compute.h"
#include "model/graph_builder.h"
#include "model/model_impl.h"
#include "winnow/session.h"

namespace winnow {

// Computes on this machine's processor. Thread-safety is that of Executor.
class CpuExecutor final : public Executor {
 public:
  // layers: those that steps of decoding go through. The model must outlive the executor. n_steps_at_once: steps under
  // way at a time; a graph that none of the last so many steps has used is freed.
  CpuExecutor(const Model::Impl& model, LayerRange layers, const EngineOptions& options, int n_steps_at_once);

  ParallelFor parallel_for() override;
  std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) override;
  bool converts_weights(std::int32_t n_rows) const override;
  void reserve_step(int n_sequences) override { step_ = &step_graph(n_sequences); }
  std::span<float> begin_step(const DecodePlan& plan) override;
  std::span<const float> run_step() override;
  void release_step() override;
  void output_logits(float* hidden, int n_rows, float* out) override;
  void output_hidden(float* hidden, int n_rows, float* out) override;
  std::vector<float> output_projection(int layer) override;
  std::size_t bytes() const override { return bytes_; }

  // The parts that a pass shares.
  const Model::Impl& model() const { return model_; }
  Compute& compute() { return compute_; }
  ConvertedLayer& converted() { return converted_; }
  Graph& graph() { return graph_; }
  int n_batch() const { return n_batch_; }
  // Writes the embeddings of tokens to `hidden` [n_tokens][n_embd], times the model's embedding scale.
  void embed(std::span<const Token> tokens, float* hidden) const;
  // Builds a graph of a layer or of the output head, with the nodes that `build` adds, and runs it.
  template <class Build>
  void run_graph(const Build& build) {
    graph_.reset();
    build(graph_);
    graph_.allocate();
    note_bytes();
    compute_.run(graph_);
  }

 private:
  // Returns the graph of a step of n_sequences sequences, and frees those of other widths that are no longer in use.
  StepGraph& step_graph(int n_sequences);
  template <class Make>
  void run_output(float* hidden, int n_rows, std::span<float> out, const Make& make);
  // Updates bytes_ after a graph has changed.
  void note_bytes();

  const Model::Impl& model_;
  const LayerRange layers_;
  const int n_batch_, n_steps_at_once_;
  Compute compute_;
  ConvertedLayer converted_;
  Graph graph_;
  std::vector<std::unique_ptr<StepGraph>> step_graphs_;  // one for each number of sequences
  StepGraph* step_ = nullptr;                            // the graph of the step that was reserved last
  std::int64_t n_steps_ = 0;                             // steps begun so far
  std::atomic<std::size_t> bytes_ = 0;
};

}  // namespace winnow
