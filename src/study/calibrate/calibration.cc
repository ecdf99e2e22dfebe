#include "study/calibrate/calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "eviction/cut/cut.h"
#include "study/calibrate/marginal_utility.h"
#include "study/calibrate/oracle.h"
#include "study/calibrate/refitted_loss.h"
#include "winnow/error.h"
#include "winnow/observe.h"
#include "winnow/version.h"

namespace winnow {
namespace {

constexpr int kRatios = 99;

// Rough shares of a sample's time; only the progress depends on them.
constexpr double kPrefillPart = 0.4, kDecodePart = 0.3;

// Returns the budgets of all heads for each global kept ratio; rows with less than the protected entries stay empty.
std::vector<std::vector<std::int32_t>> grid_budgets(const Curves& convex, std::int32_t n_context,
                                                    std::int32_t n_protected) {
  const auto n_heads = static_cast<std::int64_t>(convex.size());
  std::vector<std::vector<std::int32_t>> rows;
  std::vector<std::int64_t> totals;
  for (const double ratio : profile_ratios()) {
    const double entries = ratio * static_cast<double>(n_context) * static_cast<double>(n_heads);
    // The tolerance 1e-6 is for rounding: 0.29 * 100 is a little less than 29.
    const std::int64_t total = static_cast<std::int64_t>(std::floor(entries + 0.5 + 1e-6)) - n_protected * n_heads;
    rows.emplace_back();
    if (total >= 0) totals.push_back(total);
  }
  std::vector<std::vector<std::int32_t>> path = greedy_path(convex, totals);
  std::move_backward(path.begin(), path.end(), rows.end());
  for (std::vector<std::int32_t>& row : rows) {
    for (std::int32_t& budget : row) budget += n_protected;
  }
  return rows;
}

}  // namespace

std::vector<double> profile_ratios() {
  std::vector<double> ratios;
  for (int i = 1; i <= kRatios; ++i) ratios.push_back(i / 100.0);
  return ratios;
}

Calibration::Calibration(std::shared_ptr<Engine> engine, const CalibrationOptions& options,
                         std::vector<CalibrationSample> samples, std::string state_path)
    : engine_(std::move(engine)), options_(options), samples_(std::move(samples)), state_path_(std::move(state_path)) {
  const ModelInfo& model = engine_->model()->info();
  std::vector<std::uint64_t> hashes;
  for (const CalibrationSample& sample : samples_) {
    const auto n = static_cast<int>(sample.context.size());
    const int n_protected = options_.method.window + options_.method.sinks;
    if (n <= n_protected) {
      throw Error(ErrorCode::kInvalidArgument, "a sample of " + std::to_string(n) + " tokens is no longer than the " +
                                                   std::to_string(n_protected) +
                                                   " that are always kept: use longer samples");
    }
    const std::size_t n_all =
        sample.context.size() + sample.question.size() + static_cast<std::size_t>(options_.n_decode);
    if (n_all > static_cast<std::size_t>(model.n_ctx_train)) {
      throw Error(ErrorCode::kContextFull, "a sample with question and answer has " + std::to_string(n_all) +
                                               " tokens, more than the model's context of " +
                                               std::to_string(model.n_ctx_train) + ": use shorter samples");
    }
    hashes.push_back(hash_tokens(sample.context, sample.question));
  }
  state_.model = UtilityProfile::model_text(model.fingerprint);
  state_.scorer = options_.method.scorer_text();
  state_.loss = loss_text();
  state_.n_decode = options_.n_decode;
  state_.seed = options_.seed;
  state_.date = options_.date;
  state_.take_up(state_path_, hashes, kRatios, static_cast<std::size_t>(model.n_cut_heads()));
}

void Calibration::step(const std::function<bool(double)>& on_progress) {
  const CalibrationSample& sample = samples_[state_.samples.size()];
  state_.samples.push_back(measure(sample, on_progress));
  state_.save(state_path_);
}

SessionOptions Calibration::stored() const {
  SessionOptions session;
  session.eviction = options_.method;
  session.choose_types(engine_->model()->info());
  return session;
}

std::string Calibration::loss_text() const {
  if (options_.method.fit != Fit::kValues) return "importance";
  return "values refitted in " + std::string(entry_type_name(stored().value_type));
}

SampleBudgets Calibration::measure(const CalibrationSample& sample, const std::function<bool(double)>& on_progress) {
  const auto report = [&](double part) {
    if (on_progress && !on_progress(part)) throw Error(ErrorCode::kCancelled, "the calibration was stopped");
  };
  const auto n_context = static_cast<std::int32_t>(sample.context.size());
  const EvictionOptions& method = options_.method;

  // The ranking must be that of the cut, so it is taken once the context has been read, before the question.
  std::vector<std::vector<float>> scores;  // [heads that are cut][n_context - window]
  const bool refits = method.fit == Fit::kValues;
  std::map<int, ReferenceCopy> references;  // by layer, if values are refitted
  LayerObserver ranking{.needs = Cut::needs(method),
                        .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                          LayerScoring scoring(view, Cut::needs(method).window_columns, parallel_for);
                          const LayerScores& layer = scoring.scores(method);
                          scores.insert(scores.end(), layer.begin(), layer.end());
                          if (refits) references[view.layer] = ReferenceCopy::of(view);
                        }};
  Session session = open_observed(*engine_, {}, {.window_rows = options_.n_decode, .output_projection = true});
  PrefillOptions callbacks;
  callbacks.on_progress = [&](std::int64_t done, std::int64_t total) {
    report(kPrefillPart * static_cast<double>(done) / static_cast<double>(total));
    return true;
  };
  prefill_observed(session, sample.context, ranking, callbacks);
  if (!sample.question.empty()) session.append(sample.question);
  report(kPrefillPart);
  const auto n_rows = static_cast<int>(decode_greedily(session, options_.n_decode).size());
  report(kPrefillPart + kDecodePart);

  const int n_layer = engine_->model()->info().n_layer();
  const auto sinks = static_cast<std::size_t>(method.sinks);
  const SessionOptions types = stored();
  Curves convex;
  observe_stored(session,
                 {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                    const std::size_t first = convex.size();
                    convex.resize(first + static_cast<std::size_t>(view.n_kv_head));
                    std::vector<std::vector<double>> oracle;
                    if (!refits) oracle = oracle_importance(view, n_context, n_rows, parallel_for);
                    parallel_for(view.n_kv_head, [&](int h) {
                      const std::vector<float>& by = scores[first + static_cast<std::size_t>(h)];
                      std::vector<double> loss;
                      if (refits) {
                        loss = refitted_loss_curve(view, h,
                                                   {.n_context = n_context,
                                                    .sinks = method.sinks,
                                                    .scores = by,
                                                    .key_type = types.key_type,
                                                    .value_type = types.value_type},
                                                   references.at(view.layer), n_rows);
                      } else {
                        const std::size_t n = by.size() - sinks;
                        loss = loss_curve(std::span(oracle[static_cast<std::size_t>(h)]).subspan(sinks, n),
                                          std::span(by).subspan(sinks));
                      }
                      convex[first + static_cast<std::size_t>(h)] = convex_surrogate(loss);
                    });
                    report(kPrefillPart + kDecodePart + (1 - kPrefillPart - kDecodePart) * (view.layer + 1) / n_layer);
                  }});
  return {.hash = hash_tokens(sample.context, sample.question),
          .n_context = n_context,
          .budgets = grid_budgets(convex, n_context, method.window + method.sinks)};
}

UtilityProfile Calibration::profile() const {
  const ModelInfo& model = engine_->model()->info();
  UtilityProfile profile;
  for (const LayerInfo& layer : model.layers) profile.heads.push_back(layer.n_evictable_heads());
  profile.ratios = profile_ratios();
  profile.model = state_.model;
  profile.scorer = state_.scorer;
  profile.model_name = model.name;
  profile.n_samples = n_done();
  profile.n_tokens = options_.n_tokens;
  profile.n_decode = options_.n_decode;
  profile.seed = options_.seed;
  profile.date = state_.date;
  profile.tool = kVersion;
  if (options_.method.fit == Fit::kValues) profile.tool += ", by the error with " + state_.loss;
  const auto n_heads = static_cast<std::size_t>(model.n_cut_heads());
  for (std::size_t r = 0; r < profile.ratios.size(); ++r) {
    for (std::size_t head = 0; head < n_heads; ++head) {
      double sum = 0;
      for (const SampleBudgets& sample : state_.samples) {
        sum += sample.budgets[r].empty() ? profile.ratios[r]
                                         : static_cast<double>(sample.budgets[r][head]) / sample.n_context;
      }
      profile.kept.push_back(std::round(sum / n_done() * 1e4) / 1e4);
    }
  }
  return profile;
}

void Calibration::remove_state() const {
  std::error_code ignored;
  std::filesystem::remove(state_path_, ignored);
}

}  // namespace winnow
