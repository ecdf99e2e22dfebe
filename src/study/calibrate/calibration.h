// LU-KV's calibration: how to share a budget among a model's heads under one scorer, learned from sample prompts.
//
// For each sample the context is prefilled with the full cache and ranked by the scorer; the question follows, and some
// tokens are decoded. What those attended to is the oracle importance; the importance that a head's best i entries
// leave out is its loss at i, made convex; and each global kept ratio of the grid is shared out greedily. The profile
// is the mean over the samples.
//
// Of a method that refits values (fit=values) the loss is the error that is left in the head's output instead: see
// refitted_loss.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "study/calibrate/calibration_state.h"
#include "winnow/session.h"

namespace winnow {

struct CalibrationSample {
  std::vector<Token> context;   // ranked, and cut in the end
  std::vector<Token> question;  // may be empty
};

struct CalibrationOptions {
  EvictionOptions method;  // with the scorer; see choose_scorer
  int n_decode = 64;       // most tokens decoded after a question (K_max)
  int n_tokens = 0;        // as asked for; only noted in the profile, as are the next two
  std::uint64_t seed = 0;
  std::string date;
};

// Not thread-safe.
class Calibration {
 public:
  // Takes up the samples that `state_path` has from an earlier run. Throws Error(kInvalidArgument) for samples that the
  // method or the model's context cannot take, and for a state that is of another calibration.
  Calibration(std::shared_ptr<Engine> engine, const CalibrationOptions& options, std::vector<CalibrationSample> samples,
              std::string state_path);

  int n_samples() const { return static_cast<int>(samples_.size()); }
  int n_done() const { return static_cast<int>(state_.samples.size()); }

  // Measures the next sample and writes the state. The callback gets the part of the sample that is done, 0 .. 1; false
  // stops with Error(kCancelled), and the sample is lost.
  void step(const std::function<bool(double)>& on_progress);

  // The mean of what is done, rounded to 4 decimals.
  UtilityProfile profile() const;

  // Removes the state: the profile is saved.
  void remove_state() const;

 private:
  SessionOptions stored() const;  // with the types in which the method stores what stays
  std::string loss_text() const;  // what the curves are of
  SampleBudgets measure(const CalibrationSample& sample, const std::function<bool(double)>& on_progress);

  std::shared_ptr<Engine> engine_;
  CalibrationOptions options_;
  std::vector<CalibrationSample> samples_;
  std::string state_path_;
  CalibrationState state_;
};

// The global kept ratios of a profile: 0.01, 0.02 .. 0.99.
std::vector<double> profile_ratios();

}  // namespace winnow
