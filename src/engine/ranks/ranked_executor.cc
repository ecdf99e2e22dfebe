#include "engine/ranks/ranked_executor.h"

namespace winnow {
namespace {

// Runs a pass between other ranks: a batch goes to the next rank as soon as it has passed the last layer here.
class RankedPass final : public PassRows {
 public:
  RankedPass(std::unique_ptr<PassRows> own, const Pipeline& pipeline, int n_embd)
      : own_(std::move(own)), pipeline_(pipeline), n_embd_(n_embd) {}

  void embed(std::int32_t first_row, std::span<const Token> tokens) override { own_->embed(first_row, tokens); }
  void run_layer(const LayerPlan& plan) override {
    receive(plan);
    own_->run_layer(plan);
    send(plan);
  }
  bool splits_experts() const override { return own_->splits_experts(); }
  void run_attention_and_router(const LayerPlan& plan) override {
    receive(plan);
    own_->run_attention_and_router(plan);
  }
  void begin_experts(const ExpertPlan& plan) override { own_->begin_experts(plan); }
  bool run_experts() override { return own_->run_experts(); }
  void combine_experts(const LayerPlan& plan) override {
    own_->combine_experts(plan);
    send(plan);
  }
  std::span<float> hidden() override { return own_->hidden(); }
  std::size_t bytes() const override { return own_->bytes(); }

 private:
  std::span<float> rows_of(const LayerPlan& plan) {
    return hidden().subspan(static_cast<std::size_t>(plan.rows.first_row) * n_embd_,
                            static_cast<std::size_t>(plan.rows.n_rows) * n_embd_);
  }
  void receive(const LayerPlan& plan) {
    if (plan.layer == pipeline_.layers().first && !plan.begins_here) pipeline_.receive_rows(rows_of(plan));
  }
  void send(const LayerPlan& plan) {
    if (plan.layer + 1 == pipeline_.layers().last) pipeline_.send_rows(rows_of(plan));
  }

  const std::unique_ptr<PassRows> own_;
  const Pipeline& pipeline_;
  const std::size_t n_embd_;
};

}  // namespace

std::unique_ptr<PassRows> RankedExecutor::begin_pass(const PassPlan& plan) {
  return std::make_unique<RankedPass>(own_->begin_pass(plan), pipeline_, static_cast<std::size_t>(spec_.n_embd));
}

std::span<float> RankedExecutor::begin_step(const DecodePlan& plan) { return step_rows_ = own_->begin_step(plan); }

std::span<const float> RankedExecutor::run_step() {
  pipeline_.receive_rows(step_rows_);
  const std::span<const float> logits = own_->run_step();
  pipeline_.send_rows(step_rows_);
  if (!logits.empty()) pipeline_.send_logits(logits);
  return logits;
}

std::vector<float> RankedExecutor::await_logits(int n_sequences) {
  std::vector<float> logits(static_cast<std::size_t>(n_sequences) * static_cast<std::size_t>(spec_.n_vocab));
  pipeline_.receive_logits(logits);
  return logits;
}

void RankedExecutor::output_logits(float* hidden, int n_rows, float* out) {
  if (pipeline_.is_last()) own_->output_logits(hidden, n_rows, out);
  pipeline_.share_output({out, static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(spec_.n_vocab)});
}

void RankedExecutor::output_hidden(float* hidden, int n_rows, float* out) {
  if (pipeline_.is_last()) own_->output_hidden(hidden, n_rows, out);
  pipeline_.share_output({out, static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(spec_.n_embd)});
}

}  // namespace winnow
