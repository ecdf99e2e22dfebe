// The executor of one rank's layers among others: rows come from the rank before, go to the rank after, and the last
// rank's output goes to all.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/ranks/pipeline.h"

namespace winnow {

// Adds the exchange with other ranks to an executor of this rank's layers.
class RankedExecutor final : public Executor {
 public:
  // own: computes the layers that the pipeline gives to this rank. The pipeline and the spec must outlive this.
  RankedExecutor(std::unique_ptr<Executor> own, const Pipeline& pipeline, const ModelSpec& spec)
      : own_(std::move(own)), pipeline_(pipeline), spec_(spec) {}

  ParallelFor parallel_for() override { return own_->parallel_for(); }
  std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) override;
  bool converts_weights(std::int32_t n_rows) const override { return own_->converts_weights(n_rows); }
  void reserve_step(int n_sequences) override { own_->reserve_step(n_sequences); }
  std::span<float> begin_step(const DecodePlan& plan) override;
  std::span<const float> run_step() override;
  std::vector<float> await_logits(int n_sequences) override;
  void release_step() override { own_->release_step(); }
  void output_logits(float* hidden, int n_rows, float* out) override;
  void output_hidden(float* hidden, int n_rows, float* out) override;
  std::vector<float> output_projection(int layer) override { return own_->output_projection(layer); }
  std::size_t bytes() const override { return own_->bytes(); }

 private:
  const std::unique_ptr<Executor> own_;
  const Pipeline& pipeline_;
  const ModelSpec& spec_;
  std::span<float> step_rows_;  // hidden states of the step that was begun
};

}  // namespace winnow
