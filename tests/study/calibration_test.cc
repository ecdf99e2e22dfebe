#include "study/calibrate/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "expect_error.h"
#include "kernels/entries/rows.h"
#include "study/calibrate/oracle.h"
#include "study/calibrate/scorer_choice.h"
#include "study/tiny_prompt.h"
#include "winnow/error.h"
#include "winnow/observe.h"

namespace winnow {
namespace {

using test::read_bytes;
using test::TemporaryDirectory;
using test::tiny_engine;
using test::tiny_tokens;

std::vector<CalibrationSample> samples_of(int n, std::uint32_t seed = 1) {
  std::vector<CalibrationSample> samples;
  for (int i = 0; i < n; ++i) {
    const auto s = static_cast<std::uint32_t>(100 * i) + seed;
    samples.push_back({tiny_tokens(90 + 5 * i, s), i % 2 == 0 ? tiny_tokens(6, s + 1) : std::vector<Token>{}});
  }
  return samples;
}

CalibrationOptions options_of(const char* scorer) {
  return {.method = choose_scorer(scorer), .n_decode = 5, .n_tokens = 90, .seed = 3, .date = "2025-11-21"};
}

std::string profile_bytes(const Calibration& calibration, const std::string& path) {
  calibration.profile().save(path);
  return read_bytes(path);
}

TEST(Calibration, AProfileIsRightAndRunsInASession) {
  const TemporaryDirectory folder;
  const auto engine = tiny_engine();
  for (const char* scorer : {"snapkv:window=4", "keydiff", "expected-attention", "h2o:window=2", "tova:sinks=3",
                             "kvzip:window=3", "auto:window=3", "auto-fast:window=3,sinks=2"}) {
    Calibration calibration(engine, options_of(scorer), samples_of(2), folder.file("state"));
    while (calibration.n_done() < calibration.n_samples()) calibration.step(nullptr);
    const UtilityProfile profile = calibration.profile();
    const std::size_t n_heads = 6;  // 3 layers of 2 KV heads
    ASSERT_EQ(profile.kept.size(), 99 * n_heads);
    std::vector<double> before(n_heads, 0.0);
    for (std::size_t r = 0; r < 99; ++r) {
      double sum = 0;
      for (std::size_t h = 0; h < n_heads; ++h) {
        const double kept = profile.kept[r * n_heads + h];
        sum += kept;
        EXPECT_LE(kept, 1);
        // Rows of smaller budgets have no room for the protected entries.
        if (profile.ratios[r] > 0.2) {
          EXPECT_GE(kept, before[h] - 1e-4) << "a larger budget takes from a head";
        }
        before[h] = kept;
      }
      // Two samples' totals are rounded to entries, and the ratios to 4 decimals.
      EXPECT_NEAR(sum / n_heads, profile.ratios[r], 0.5 / (90 * n_heads) + 1e-4) << scorer << " " << profile.ratios[r];
    }
    EXPECT_EQ(profile.model, UtilityProfile::model_text(engine->model()->info().fingerprint));
    EXPECT_EQ(profile.n_samples, 2);
    const bool refits = choose_scorer(scorer).fit == Fit::kValues;
    EXPECT_EQ(profile.tool.find("values refitted in r4") != std::string::npos, refits) << profile.tool;

    profile.save(folder.file("profile.json"));
    SessionOptions session_options;
    session_options.eviction = choose_scorer(scorer);
    session_options.eviction.set("profile", folder.file("profile.json"));
    session_options.budget = Budget::parse("40%");
    Session session = engine->open(session_options);
    session.prefill(samples_of(1)[0].context);
    EXPECT_EQ(session.statistics().entries_kept, std::llround(0.4 * 90 * n_heads)) << scorer;
    calibration.remove_state();
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("state")));
}

TEST(Calibration, GoesOnAfterAKillWithTheSameFile) {
  const TemporaryDirectory folder;
  const std::string state = folder.file("state");
  std::string whole;
  {
    const auto engine = tiny_engine();
    Calibration calibration(engine, options_of("snapkv:window=4"), samples_of(4), folder.file("whole.state"));
    while (calibration.n_done() < 4) calibration.step(nullptr);
    whole = profile_bytes(calibration, folder.file("a.json"));
  }
  for (int n_before : {1, 3}) {
    {
      Calibration calibration(tiny_engine(), options_of("snapkv:window=4"), samples_of(4), state);
      for (int i = 0; i < n_before; ++i) calibration.step(nullptr);
      // The calibration is stopped within the next sample, which is lost.
      test::expect_error(ErrorCode::kCancelled, "the calibration was stopped",
                         [&] { calibration.step([](double part) { return part < 0.5; }); });
      EXPECT_EQ(calibration.n_done(), n_before);
    }
    CalibrationOptions later = options_of("snapkv:window=4");
    later.date = "2026-01-01";  // ignored, because the calibration began earlier
    Calibration calibration(tiny_engine(), later, samples_of(4), state);
    EXPECT_EQ(calibration.n_done(), n_before);
    while (calibration.n_done() < 4) calibration.step(nullptr);
    EXPECT_EQ(profile_bytes(calibration, folder.file("b.json")), whole);
    calibration.remove_state();
  }
}

TEST(Calibration, ForeignAndDamagedStatesAreRefused) {
  const TemporaryDirectory folder;
  const auto engine = tiny_engine();
  const std::string path = folder.file("state");
  Calibration calibration(engine, options_of("snapkv:window=4"), samples_of(2), path);
  calibration.step(nullptr);
  const auto code = [&](const CalibrationOptions& options, const std::vector<CalibrationSample>& samples,
                        const std::shared_ptr<Engine>& with) {
    try {
      const Calibration again(with, options, samples, path);
      return ErrorCode::kInternal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  CalibrationOptions other = options_of("snapkv:window=4");
  EXPECT_EQ(code(options_of("snapkv:window=5"), samples_of(2), engine), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(options_of("snapkv:window=4,fit=values"), samples_of(2), engine), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(other, samples_of(2, 2), engine), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(other, samples_of(2),
                 tiny_engine(
                     {.seed = 2,
                      .edit_metadata = [](gguf_context* file) { gguf_set_val_str(file, "general.name", "another"); }})),
            ErrorCode::kInvalidArgument);
  other.n_decode = 6;
  EXPECT_EQ(code(other, samples_of(2), engine), ErrorCode::kInvalidArgument);
  other = options_of("snapkv:window=4");
  other.seed = 4;
  EXPECT_EQ(code(other, samples_of(2), engine), ErrorCode::kInvalidArgument);
  // The same calibration may continue with more samples.
  EXPECT_EQ(code(options_of("snapkv:window=4"), samples_of(3), engine), ErrorCode::kInternal) << "no error";

  const std::string whole = read_bytes(path);
  for (const std::string& text :
       {whole.substr(0, whole.size() / 2), std::string("{}"), std::string("[]"), std::string()}) {
    folder.write("state", text);
    EXPECT_EQ(code(options_of("snapkv:window=4"), samples_of(2), engine), ErrorCode::kBadFile);
  }
}

TEST(Calibration, SamplesThatCannotBeMeasuredAreRefused) {
  const TemporaryDirectory folder;
  const auto engine = tiny_engine({.n_ctx = 128});
  const auto code = [&](std::vector<CalibrationSample> samples) {
    try {
      const Calibration calibration(engine, options_of("snapkv:window=32"), std::move(samples), folder.file("state"));
      return ErrorCode::kInternal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code({{tiny_tokens(36, 1), {}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{tiny_tokens(124, 1), {}}}), ErrorCode::kContextFull);
  EXPECT_EQ(code({{tiny_tokens(123, 1), {}}}), ErrorCode::kInternal) << "no error";
}

TEST(Oracle, IsWhatTheRowsOfTheContinuationAttendTo) {
  const auto engine = tiny_engine();
  SessionOptions options;
  options.key_type = options.value_type = EntryType::kF32;
  constexpr int kContext = 40, kRows = 7;
  Session session = open_observed(*engine, options, {.window_rows = kRows + 3, .output_projection = true});
  session.prefill(tiny_tokens(kContext, 5));
  session.append(tiny_tokens(kRows, 6));
  observe_stored(
      session, {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                  const auto importance = oracle_importance(view, kContext, kRows, parallel_for);
                  const auto attention = future_attention(view, kContext, kRows, parallel_for);
                  const int d = view.shape.key_dim, n_group = view.shape.n_group, n = kContext + kRows;
                  for (int kv = 0; kv < view.n_kv_head; ++kv) {
                    std::vector<std::vector<float>> keys, values;
                    for (const kernels::EntryRun& run : view.heads[static_cast<std::size_t>(kv)].runs) {
                      for (std::ptrdiff_t r = 0; r < run.n_entries; ++r) {
                        for (auto [from, to] : {std::pair{run.keys, &keys}, std::pair{run.values, &values}}) {
                          kernels::load_row(EntryType::kF32, from + r * d * 4, to->emplace_back(d).data(), d);
                        }
                      }
                    }
                    std::vector<double> largest(kContext, 0.0), mean(kContext, 0.0);
                    for (int g = 0; g < n_group; ++g) {
                      const int head = kv * n_group + g;
                      for (int row = 0; row < kRows; ++row) {
                        const float* q =
                            view.window_q + (std::ptrdiff_t{view.n_window_rows - kRows + row} * view.n_head + head) * d;
                        const int seen = kContext + row + 1;
                        std::vector<double> weight(static_cast<std::size_t>(n), 0.0);
                        double sum = 0;
                        for (int i = 0; i < seen; ++i) {
                          double score = 0;
                          for (int c = 0; c < d; ++c) score += double{q[c]} * double{keys[i][c]};
                          sum += weight[i] = std::exp(score * double{view.shape.spec.scale});
                        }
                        for (int i = 0; i < kContext; ++i) {
                          double square = 0;
                          for (int e = 0; e < view.n_embd; ++e) {
                            double product = 0;
                            for (int c = 0; c < d; ++c) {
                              product += double{values[i][c]} *
                                         double{view.w_o[(std::ptrdiff_t{head} * d + c) * view.n_embd + e]};
                            }
                            square += product * product;
                          }
                          largest[i] = std::max(largest[i], weight[i] / sum * std::sqrt(square));
                          mean[i] += weight[i] / sum / kRows / n_group;
                        }
                      }
                    }
                    for (int i = 0; i < kContext; ++i) {
                      EXPECT_NEAR(importance[kv][i], largest[i], 1e-5 * largest[i] + 1e-9) << kv << " " << i;
                      EXPECT_NEAR(attention[kv][i], mean[i], 1e-5 * mean[i] + 1e-9) << kv << " " << i;
                    }
                  }
                }});
}

}  // namespace
}  // namespace winnow
