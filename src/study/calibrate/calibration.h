// LU-KV's calibration: it learns from sample prompts how to share a budget among a model's heads under one scorer.
//
// For each sample the context is prefilled with the full cache and ranked by the scorer; the question follows, and some
// tokens are decoded. Their attention gives the oracle importance; a head's loss at i is the importance outside of its
// best i entries, made convex; and each global kept ratio of the grid is shared out greedily. The profile is the mean
// over the samples.
//
// For a method that refits values (fit=values) the loss is instead the error that is left in the head's output: see
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
  std::vector<Token> context;   // ranked by the scorer
  std::vector<Token> question;  // may be empty
};

struct CalibrationOptions {
  EvictionOptions method;  // with the scorer; see choose_scorer
  int n_decode = 64;       // most tokens decoded after a question (K_max)
  int n_tokens = 0;        // as requested; only recorded in the profile, as are the next two
  std::uint64_t seed = 0;
  std::string date;
};

// Not thread-safe.
class Calibration {
 public:
  // Continues with the samples that `state_path` has from an earlier run. Throws Error(kInvalidArgument) for samples
  // that are too short for the method and for the state of another calibration, kContextFull for samples that are too
  // long for the model, kBadFile for a damaged state.
  Calibration(std::shared_ptr<Engine> engine, const CalibrationOptions& options, std::vector<CalibrationSample> samples,
              std::string state_path);

  int n_samples() const { return static_cast<int>(samples_.size()); }
  int n_done() const { return static_cast<int>(state_.samples.size()); }

  // Measures the next sample and writes the state. The callback gets the share of the sample that is done, 0 .. 1; if
  // it returns false, this throws Error(kCancelled), and the sample is lost.
  void step(const std::function<bool(double)>& on_progress);

  // Returns the mean over the samples that are done, rounded to 4 decimals.
  UtilityProfile profile() const;

  // Removes the state, which is not needed once the profile is saved.
  void remove_state() const;

 private:
  SessionOptions stored() const;  // options with the types in which the method stores its entries
  std::string loss_text() const;  // name of the loss of the curves
  SampleBudgets measure(const CalibrationSample& sample, const std::function<bool(double)>& on_progress);

  std::shared_ptr<Engine> engine_;
  CalibrationOptions options_;
  std::vector<CalibrationSample> samples_;
  std::string state_path_;
  CalibrationState state_;
};

// Returns the global kept ratios of a profile: 0.01, 0.02 .. 0.99.
std::vector<double> profile_ratios();

}  // namespace winnow
