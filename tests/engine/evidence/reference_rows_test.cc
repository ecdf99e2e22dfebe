// Reference rows, which stand for the other rows of a prompt; the scores and refitted values that are computed from
// them; and the rows of a late repeat.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/engine_test_support.h"
#include "engine/evidence/reference_attention.h"
#include "engine/prefill/late_repeat.h"
#include "eviction/options/registry.h"
#include "expect_error.h"
#include "kernels/entries/rows.h"
#include "winnow/layer_evidence.h"
#include "winnow/observe.h"
#include "winnow/registry.h"

namespace winnow::test {
namespace {

// Returns a row [head_dim] rotated by so many positions, in double precision.
std::vector<double> turned(const float* row, int head_dim, const RotationView& rotation, double positions) {
  std::vector<double> out(row, row + head_dim);
  for (int i = 0; i < rotation.n_dims / 2; ++i) {
    const int a = rotation.interleaved ? 2 * i : i, b = rotation.interleaved ? 2 * i + 1 : i + rotation.n_dims / 2;
    const double angle = static_cast<double>(rotation.frequency[i]) * positions;
    const double x = static_cast<double>(row[a]), y = static_cast<double>(row[b]);
    out[static_cast<std::size_t>(a)] = x * std::cos(angle) - y * std::sin(angle);
    out[static_cast<std::size_t>(b)] = x * std::sin(angle) + y * std::cos(angle);
  }
  return out;
}

std::vector<std::vector<double>> keys_of(const LayerView& view, int head) {
  std::vector<std::vector<double>> keys;
  const std::size_t bytes = row_bytes(view.shape.key_type, view.shape.key_dim);
  for (const kernels::EntryRun& run : view.heads[static_cast<std::size_t>(head)].runs) {
    for (std::int32_t i = 0; i < run.n_entries; ++i) {
      std::vector<float> key(static_cast<std::size_t>(view.shape.key_dim));
      kernels::load_row(view.shape.key_type, run.keys + static_cast<std::size_t>(i) * bytes, key.data(),
                        view.shape.key_dim);
      keys.emplace_back(key.begin(), key.end());
    }
  }
  return keys;
}

// Shows `look` every layer of a prompt of n_tokens tokens, with its reference rows and all queries.
void observe(int n_tokens, const std::function<void(const LayerView&, const ParallelFor&)>& look) {
  const auto engine = small_engine();
  Session session = engine->open(full_options());
  EvidenceNeeds needs;
  needs.reference_rows = needs.all_queries = true;
  int n_seen = 0;
  prefill_observed(session, random_tokens(n_tokens, 300, 5),
                   {.needs = needs, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                      ++n_seen;
                      look(view, parallel_for);
                    }});
  EXPECT_EQ(n_seen, kSmallModel.n_layer);
}

TEST(ReferenceRows, AreRowsOfThePromptTurnedToPositionsBehindIt) {
  for (const int n_tokens : {1, 5, 40, 700}) {
    observe(n_tokens, [&](const LayerView& view, const ParallelFor&) {
      ASSERT_EQ(view.n_query_rows, n_tokens);
      ASSERT_GE(view.n_reference_rows, std::min(n_tokens - std::min(8, n_tokens - 1), 180)) << n_tokens;
      ASSERT_LE(view.n_reference_rows, 192);
      const int d = view.shape.key_dim;
      const std::ptrdiff_t row_floats = std::ptrdiff_t{view.n_head} * d;
      int last_found = -1;
      for (int i = 0; i < view.n_reference_rows; ++i) {
        // Finds the prompt's row that equals the reference row once it has been rotated.
        int found = -1;
        for (int p = last_found + 1; p < n_tokens && found < 0; ++p) {
          double distance = 0;
          for (int h = 0; h < view.n_head; ++h) {
            const auto expected = turned(view.all_q + p * row_floats + h * d, d, view.rotation, n_tokens + i % 64 - p);
            for (int c = 0; c < d; ++c) {
              const double got = static_cast<double>(view.reference_q[i * row_floats + h * d + c]);
              distance = std::max(distance, std::abs(got - expected[static_cast<std::size_t>(c)]));
            }
          }
          if (distance < 1e-4) found = p;
        }
        ASSERT_GE(found, 0) << "row " << i << " of " << n_tokens;
        last_found = found;
      }
      EXPECT_EQ(last_found, n_tokens - 1);  // the last row is always among them
    });
  }
}

// Returns the error that the reference rows of a layer's heads see from errors of keys: the sum of (q . error)^2.
double seen_error(const LayerView& view, const std::vector<std::vector<std::vector<double>>>& before,
                  const std::vector<std::vector<std::vector<double>>>& after) {
  const int d = view.shape.key_dim, n_group = view.shape.n_group;
  double sum = 0;
  for (int h = 0; h < view.n_kv_head; ++h) {
    const auto head = static_cast<std::size_t>(h);
    for (std::size_t i = 0; i < before[head].size(); ++i) {
      for (int r = 0; r < view.n_reference_rows * n_group; ++r) {
        const float* q = view.reference_q + (std::ptrdiff_t{r / n_group} * view.n_head + h * n_group + r % n_group) * d;
        double error = 0;
        for (std::size_t c = 0; c < static_cast<std::size_t>(d); ++c) {
          error += static_cast<double>(q[c]) * (after[head][i][c] - before[head][i][c]);
        }
        sum += error * error;
      }
    }
  }
  return sum;
}

// Keys of a session that stores codes are coded so that the reference rows see less of the errors than if each number
// were rounded by itself. Where nothing is cut they are rounded by themselves.
TEST(ReferenceRows, SayHowKeysAreCoded) {
  for (const char* method : {"full", "streaming-llm:sinks=4"}) {
    for (const EntryType type : {EntryType::kR4, EntryType::kR3}) {
      SCOPED_TRACE(std::string(method) + " " + std::string(entry_type_name(type)));
      const auto engine = Engine::create(tiny_model({.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 64}),
                                         {.n_threads = 2, .n_batch = 48});
      SessionOptions options = std::string(method) == "full" ? full_options() : evicting_options(method, "100%");
      options.key_type = type;
      Session session = engine->open(options);
      EvidenceNeeds needs;
      needs.reference_rows = true;
      using Keys = std::vector<std::vector<std::vector<double>>>;  // [KV heads][entries][key_dim]
      std::vector<Keys> plain;
      std::vector<std::vector<float>> reference;
      prefill_observed(session, random_tokens(300, 300, 5),
                       {.needs = needs, .on_layer = [&](const LayerView& view, const ParallelFor&) {
                          Keys keys;
                          for (int h = 0; h < view.n_kv_head; ++h) keys.push_back(keys_of(view, h));
                          plain.push_back(std::move(keys));
                          const auto n = static_cast<std::size_t>(view.n_reference_rows) *
                                         static_cast<std::size_t>(view.n_head * view.shape.key_dim);
                          reference.emplace_back(view.reference_q, view.reference_q + n);
                        }});
      observe_stored(session, {.needs = {}, .on_layer = [&](LayerView view, const ParallelFor&) {
                                 const auto l = static_cast<std::size_t>(view.layer);
                                 const int d = view.shape.key_dim;
                                 view.reference_q = reference[l].data();
                                 view.n_reference_rows = static_cast<int>(reference[l].size()) / (view.n_head * d);
                                 Keys before(2), stored(2), by_themselves(2);
                                 for (std::size_t h = 0; h < 2; ++h) {
                                   for (const kernels::EntryRun& run : view.heads[h].runs) {
                                     if (run.key_type != type) continue;
                                     // Keys are coded relative to the head's origin.
                                     ASSERT_NE(run.origin, nullptr);
                                     std::vector<float> origin(static_cast<std::size_t>(d));
                                     kernels::load_row(EntryType::kF16, run.origin, origin.data(), d);
                                     for (std::int32_t i = 0; i < run.n_entries; ++i) {
                                       const auto& key = plain[l][h][static_cast<std::size_t>(run.positions[i])];
                                       std::vector<float> row(key.begin(), key.end());
                                       std::vector<std::byte> code(row_bytes(type, d));
                                       for (std::size_t c = 0; c < row.size(); ++c) row[c] -= origin[c];
                                       kernels::store_row(type, row.data(), code.data(), d);
                                       kernels::load_row(type, code.data(), row.data(), d);
                                       for (std::size_t c = 0; c < row.size(); ++c) row[c] += origin[c];
                                       before[h].push_back(key);
                                       by_themselves[h].emplace_back(row.begin(), row.end());
                                       kernels::load_entry(view.shape, run, kernels::RowKind::kKey, i, row.data());
                                       stored[h].emplace_back(row.begin(), row.end());
                                     }
                                   }
                                   ASSERT_GE(before[h].size(), 200U);
                                 }
                                 const double seen = seen_error(view, before, stored),
                                              seen_by_themselves = seen_error(view, before, by_themselves);
                                 if (session.options().eviction.evicts()) {
                                   EXPECT_LT(seen, 0.8 * seen_by_themselves);
                                 } else {
                                   EXPECT_EQ(seen, seen_by_themselves);
                                 }
                               }});
    }
  }
}

// The attention of the reference rows of one head's group on all entries, in double precision.
struct ReferenceRowsOfHead {
  std::vector<std::vector<double>> weights;  // [n_reference_rows * n_group][n_entries]
  std::vector<double> log_sum_exp;           // [n_reference_rows * n_group]
};

ReferenceRowsOfHead reference_attention(const LayerView& view, int head) {
  const int d = view.shape.key_dim, n_group = view.shape.n_group;
  const auto keys = keys_of(view, head);
  ReferenceRowsOfHead rows;
  for (int r = 0; r < view.n_reference_rows * n_group; ++r) {
    const float* q = view.reference_q + (std::ptrdiff_t{r / n_group} * view.n_head + head * n_group + r % n_group) * d;
    std::vector<double>& weights = rows.weights.emplace_back();
    for (const std::vector<double>& key : keys) {
      double score = 0;
      for (int c = 0; c < d; ++c) score += static_cast<double>(q[c]) * key[static_cast<std::size_t>(c)];
      weights.push_back(std::exp(score * static_cast<double>(view.shape.spec.scale)));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    rows.log_sum_exp.push_back(std::log(sum));
  }
  return rows;
}

// The scorer adds what the last 32 rows look at, with the tokens around it, where the question is in sight.
void expect_weight_of_question(const std::string& method, const char* scorer) {
  constexpr double kWeight = 3;
  for (const int n_tokens : {300, 20}) {
    observe(n_tokens, [&](const LayerView& view, const ParallelFor& parallel_for) {
      const EvictionOptions options = EvictionOptions::parse(method + ":window=4,question=last,question-weight=3");
      const EvictionOptions without = EvictionOptions::parse(method + ":window=4");
      LayerEvidence evidence(view, options, 0, parallel_for);
      const LayerScores scores = find_scorer(scorer).score(evidence, options);
      const LayerScores plain = find_scorer(scorer).score(evidence, without);
      const int n_group = view.shape.n_group, n_last = std::min(32, view.n_reference_rows);
      for (int h = 0; h < view.n_kv_head; ++h) {
        const auto head = static_cast<std::size_t>(h);
        const auto rows = reference_attention(view, h).weights;
        const int n = n_tokens - 4;
        ASSERT_EQ(std::ssize(scores[head]), n);
        std::vector<std::vector<double>> rms(static_cast<std::size_t>(n_group), std::vector<double>(rows[0].size()));
        for (int g = 0; g < n_group; ++g) {
          for (std::size_t i = 0; i < rows[0].size(); ++i) {
            double sum = 0;
            for (int r = view.n_reference_rows - n_last; r < view.n_reference_rows; ++r) {
              const double weight = rows[static_cast<std::size_t>(r * n_group + g)][i];
              sum += weight * weight;
            }
            rms[static_cast<std::size_t>(g)][i] = std::sqrt(sum / n_last);
          }
        }
        for (int i = 0; i < n; ++i) {
          double expected = 0;
          for (const std::vector<double>& of_head : rms) {
            const auto first = of_head.begin() + std::max(i - 3, 0), last = of_head.begin() + std::min(i + 4, n);
            expected += kWeight * *std::max_element(first, last) / n_group;
          }
          const auto at = static_cast<std::size_t>(i);
          EXPECT_NEAR(static_cast<double>(scores[head][at]), static_cast<double>(plain[head][at]) + expected,
                      2e-4 * (1 + expected))
              << i;
        }
      }
    });
  }
}

TEST(ReferenceRows, TheLastOnesWeighAsTheQuestion) {
  expect_weight_of_question("auto-fast", "rms");
  expect_weight_of_question("auto", "combined");
}

TEST(ReferenceRows, RmsIsTheRootOfTheMeanSquaredAttention) {
  observe(300, [](const LayerView& view, const ParallelFor& parallel_for) {
    const EvictionOptions options = EvictionOptions::parse("snapkv:scorer=rms,window=32,sinks=4");
    LayerEvidence evidence(view, options, 0, parallel_for);
    const LayerScores scores = find_scorer("rms").score(evidence, options);
    const int n_group = view.shape.n_group;
    std::vector<float> log_sum_exp(static_cast<std::size_t>(view.n_reference_rows * view.n_head));
    for (int h = 0; h < view.n_kv_head; ++h) {
      const ReferenceRowsOfHead rows = reference_attention(view, h);
      std::vector<double> squares(rows.weights[0].size(), 0.0);
      for (int r = 0; r < view.n_reference_rows * n_group; ++r) {
        const auto row = static_cast<std::size_t>(r);
        for (std::size_t j = 0; j < squares.size(); ++j) squares[j] += rows.weights[row][j] * rows.weights[row][j];
        log_sum_exp[static_cast<std::size_t>(r / n_group * view.n_head + h * n_group + r % n_group)] =
            static_cast<float>(rows.log_sum_exp[row]);
      }
      ASSERT_EQ(scores[static_cast<std::size_t>(h)].size(), squares.size() - 32);
      for (std::size_t j = 0; j < squares.size() - 32; ++j) {
        const double expected = std::sqrt(squares[j] / (view.n_reference_rows * n_group));
        EXPECT_NEAR(static_cast<double>(scores[static_cast<std::size_t>(h)][j]), expected, 2e-4 * expected) << j;
      }
    }

    LayerView known = view;  // log-sum-exps that are known already can be given
    known.reference_log_sum_exp = log_sum_exp.data();
    LayerEvidence of_known(known, options, 0, parallel_for);
    const LayerScores same = find_scorer("rms").score(of_known, options);
    for (std::size_t h = 0; h < scores.size(); ++h) {
      for (std::size_t j = 0; j < scores[h].size(); ++j) EXPECT_NEAR(same[h][j], scores[h][j], 1e-4F * scores[h][j]);
    }
  });
}

// kvzip+ (KVzap, arXiv 2601.07891) is computed in double precision from the evidence that the engine shows. The input
// norms are those of the rows' tokens before the first layer.
TEST(KvZipPlus, IsWhatAttentionAddsToTheResidualStream) {
  const auto engine = small_engine();
  Session session = engine->open(full_options());
  const std::vector<Token> prompt = random_tokens(90, 300, 5);
  const EvictionOptions options = EvictionOptions::parse("kvzip+:window=16");
  EvidenceNeeds needs;
  needs.reconstruction_pass = needs.output_projection = true;
  const auto judge = [&](const LayerView& view, const ParallelFor& parallel_for) {
    LayerEvidence evidence(view, options, 0, parallel_for);
    const LayerScores scores = find_scorer("kvzip+").score(evidence, options);
    ASSERT_EQ(view.passes.size(), 1U);
    const ReconstructionPass& pass = view.passes[0];
    EXPECT_EQ(pass.near_first, 0);
    EXPECT_GE(pass.near_end, 90);
    const int n_request = pass.n_rows - 90, d = view.shape.key_dim, n_group = view.shape.n_group;
    for (int i = 0; view.layer == 0 && i < 90; ++i) {
      for (int j = 0; j < i; ++j) {
        const bool is_same = prompt[static_cast<std::size_t>(i)] == prompt[static_cast<std::size_t>(j)];
        EXPECT_EQ(pass.input_norm[n_request + i] == pass.input_norm[n_request + j], is_same) << i << ", " << j;
      }
    }
    for (int h = 0; h < view.n_kv_head; ++h) {
      const auto keys = keys_of(view, h);
      std::vector<float> values(keys.size() * static_cast<std::size_t>(d));
      evidence.read_values(h, 0, static_cast<std::int32_t>(keys.size()), values.data());
      ASSERT_EQ(scores[static_cast<std::size_t>(h)].size(), keys.size() - 16);
      for (std::size_t i = 0; i < keys.size() - 16; ++i) {
        double expected = 0;
        for (int g = 0; g < n_group; ++g) {
          const int head = h * n_group + g;
          double square = 0;
          for (int c = 0; c < view.n_embd; ++c) {
            double x = 0;
            for (int e = 0; e < d; ++e) {
              x += static_cast<double>(values[i * static_cast<std::size_t>(d) + static_cast<std::size_t>(e)]) *
                   static_cast<double>(view.w_o[(std::ptrdiff_t{head} * d + e) * view.n_embd + c]);
            }
            square += x * x;
          }
          for (int r = 0; r < pass.n_rows; ++r) {
            const float* q = pass.q + (std::ptrdiff_t{r} * view.n_head + head) * d;
            double score = -static_cast<double>(pass.log_sum_exp[r * view.n_head + head]);
            for (int c = 0; c < d; ++c) {
              score += static_cast<double>(q[c]) * keys[i][static_cast<std::size_t>(c)] *
                       static_cast<double>(view.shape.spec.scale);
            }
            const double added = std::exp(score) * std::sqrt(square) / static_cast<double>(pass.input_norm[r]);
            expected = std::max(expected, added);
          }
        }
        EXPECT_NEAR(static_cast<double>(scores[static_cast<std::size_t>(h)][i]), expected, 1e-3 * expected) << i;
      }
    }
  };
  prefill_observed(session, prompt, {.needs = needs, .on_layer = judge});
}

double distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      sum += std::pow(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j]), 2);
    }
  }
  return std::sqrt(sum);
}

TEST(RefittedValues, BringLaterTokensNearerToTheFullCache) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(400, 300, 7), later = random_tokens(24, 300, 8);
  for (const char* method : {"snapkv", "kvzip:sinks=4", "lava"}) {
    for (const EntryType type : {EntryType::kF16, EntryType::kR4}) {
      for (const bool chunked : {false, true}) {
        if (chunked && std::string_view(method).starts_with("kvzip")) continue;
        const auto run = [&](const std::string& text, const char* budget) {
          SessionOptions options = full_options();
          options.key_type = options.value_type = type;
          if (!text.empty()) {
            options = evicting_options(text, budget);
            options.key_type = options.value_type = type;
            options.prefill_chunk = chunked ? 200 : 0;
          } else {
            options.key_type = options.value_type = EntryType::kF32;
          }
          Session session = engine->open(options);
          session.prefill(prompt);
          const HeadPositions kept = kept_positions(session);
          return std::pair(decode_all(session, later), kept);
        };
        const std::string name(method);
        const std::string fitted = name + (name.find(':') == std::string::npos ? ":" : ",") + "fit=values";
        const auto full = run("", "");
        const auto plain = run(name, "25%");
        const auto refitted = run(fitted, "25%");
        if (!chunked) {
          EXPECT_EQ(plain.second, refitted.second);
        }  // the method makes the choice
        EXPECT_LT(distance(refitted.first, full.first), (chunked ? 1.0 : 0.9) * distance(plain.first, full.first))
            << method << " " << entry_type_name(type) << (chunked ? " in chunks" : "");
      }
    }
  }
}

TEST(RefittedValues, StandStillWhereNothingIsCut) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(60, 300, 9);
  Session plain = engine->open(evicting_options("snapkv", "100%"));
  Session fitted = engine->open(evicting_options("snapkv:fit=values", "100%"));
  plain.prefill(prompt);
  fitted.prefill(prompt);
  EXPECT_EQ(logits_of(plain), logits_of(fitted));
  EXPECT_EQ(decode_all(plain, random_tokens(3, 300, 1)), decode_all(fitted, random_tokens(3, 300, 1)));
}

TEST(RefittedValues, TakeNoMoreThanWasEstimated) {
  const auto engine = small_engine();
  const SessionOptions options = evicting_options("lava:fit=values", "30%");
  const MemoryEstimate estimate = engine->estimate(options, 500, 4);
  Session session = engine->open(options);
  session.prefill(random_tokens(500, 300, 2));
  EXPECT_LE(engine->memory().kv_bytes_peak, estimate.kv_bytes_peak);
}

// A scorer by small key norms that throws in the second layer once `fails` is set.
class Failing final : public Scorer {
 public:
  static inline bool fails = false;
  EvidenceNeeds needs(const EvictionOptions& options) const override { return find_scorer("knorm").needs(options); }
  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    if (fails && evidence.layer().layer == 1) throw Error(ErrorCode::kCancelled, "told to fail");
    return find_scorer("knorm").score(evidence, options);
  }
};

// Two sessions before a cut of a turn that is to fail: the second has been fed the turn without a cut.
struct BeforeATurn {
  BeforeATurn(Engine& engine, const char* method) : session(opened(engine, method)) {
    session.prefill(random_tokens(300, 300, 1));
    uncut.emplace(session.fork());
    uncut->append(turn);
  }

  const std::vector<Token> turn = random_tokens(50, 300, 2), later = random_tokens(12, 300, 3);
  Session session;
  std::optional<Session> uncut;

 private:
  static Session opened(Engine& engine, const char* method) {
    SessionOptions options;
    options.eviction = EvictionOptions::parse(method);
    options.budget = Budget::parse("100");
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = 4;
    return engine.open(options);
  }
};

TEST(RefittedValues, OutliveACutThatFails) {
  register_scorer("failing", std::make_unique<Failing>());
  const auto engine = small_engine();
  BeforeATurn before(*engine, "snapkv:scorer=failing,window=4,fit=values,bits=4");
  Failing::fails = true;
  expect_error(ErrorCode::kCancelled, "told to fail", [&] { before.session.prefill(before.turn); });
  Failing::fails = false;
  EXPECT_EQ(kept_positions(before.session), kept_positions(*before.uncut));
  // Cuts while decoding refit no values: entries that they move keep their codes.
  EXPECT_EQ(decode_all(before.session, before.later), decode_all(*before.uncut, before.later));
  EXPECT_EQ(kept_positions(before.session), kept_positions(*before.uncut));
}

// The turn is fed, and there is no memory for its cut, which the next one makes up for.
TEST(RefittedValues, OutliveACutWithoutMemory) {
  constexpr std::size_t kLimit = 64 << 20;
  const auto engine =
      Engine::create(tiny_model(kSmallModel), {.n_threads = 2, .kv_bytes_limit = kLimit, .n_batch = 48});
  BeforeATurn before(*engine, "snapkv:window=4,fit=values,bits=4");
  Session& session = before.session;
  const auto n_steps = [&](Session& fork) {
    Session* of_turn[] = {&fork};
    Prefill prefill = engine->start_prefill(of_turn, before.turn);
    int n = 1;
    while (prefill.step()) ++n;
    return n;
  };
  Session whole = session.fork();
  const int n = n_steps(whole);
  {
    Session* of_turn[] = {&session};
    Prefill prefill = engine->start_prefill(of_turn, before.turn);
    for (int i = 1; i < n; ++i) prefill.step();
    const PoolStatistics pool = engine->impl().pool->statistics();
    const std::size_t attention = ReferenceAttention::bytes_for(engine->model()->impl().spec, engine->impl().layers,
                                                                session.impl().evidence.n_reference_rows());
    const auto rest = engine->impl().pool->reserve(kLimit - pool.bytes_in_use - pool.bytes_reserved - attention);
    expect_error(ErrorCode::kOutOfMemory, [&] { prefill.step(); });
  }
  ASSERT_EQ(kept_positions(session), kept_positions(*before.uncut));
  // Cuts while decoding refit no values, and leave none waiting: a file has no place for those.
  decode_all(session, before.later);
  const std::string path = testing::TempDir() + "no_memory.session";
  session.save(path);
  EXPECT_EQ(kept_positions(engine->load_session(path)), kept_positions(session));
}

TEST(ReferenceRows, CannotScoreWhileDecoding) {
  SessionOptions options = evicting_options("snapkv:scorer=rms", "30%");
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  const auto engine = small_engine();
  expect_error(ErrorCode::kUnsupported, "while decoding", [&] { engine->open(options); });
  options.eviction = EvictionOptions::parse("snapkv:fit=values");  // only the values of prompts are refitted
  Session session = engine->open(options);
  session.prefill(random_tokens(200, 300, 2));
  decode_all(session, random_tokens(5, 300, 1));
  EXPECT_EQ(session.statistics().entries_kept, 60 * kSmallModel.n_layer * kSmallModel.n_kv_head);
}

// Returns the sum of the exponentials of a query's scores over the first n keys.
double exponentials(const std::vector<double>& q, const std::vector<std::vector<double>>& keys, float scale,
                    std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    sum += std::exp(static_cast<double>(scale) * std::inner_product(q.begin(), q.end(), keys[i].begin(), 0.0));
  }
  return sum;
}

// Before the layer where the repeat begins, its rows are the prompt's, rotated to the positions after it, and see what
// the prompt's rows saw when it was read. In that layer their hidden states are still the prompt's, and they see their
// own rows.
void expect_repeat(int n_tokens, bool sees_all) {
  constexpr int kPart = 256, kNear = 128, kEvery = 37;
  const auto engine = Engine::create(
      tiny_model({.n_layer = 4, .n_head = 4, .n_kv_head = 2, .head_dim = 16, .n_ctx = 2 * n_tokens, .seed = 3}),
      {.n_threads = 2, .n_batch = 256});
  SessionOptions options = evicting_options("auto:bits=own,fit=none,repeat=late", "50%");
  options.key_type = options.value_type = EntryType::kF32;
  Session session = engine->open(options);
  std::vector<int> layers;
  prefill_observed(
      session, random_tokens(n_tokens, 300, 5),
      {.needs = {.log_sum_exp = true, .all_queries = true, .late_repeat = true, .reference_rows = true},
       .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
         layers.push_back(view.layer);
         ASSERT_EQ(std::ssize(view.passes), (n_tokens + kPart - 1) / kPart);
         for (int part = 0; part < std::ssize(view.passes); ++part) {
           const ReconstructionPass& pass = view.passes[static_cast<std::size_t>(part)];
           EXPECT_EQ(pass.n_rows, std::min(kPart, n_tokens - part * kPart));
           EXPECT_EQ(pass.near_first, std::max(part * kPart - kNear, 0));
           EXPECT_EQ(pass.near_end, std::min(part * kPart + kPart + kNear, n_tokens));
         }
         if (view.layer > 1) return;
         const int d = view.shape.key_dim, n_group = view.shape.n_group;
         const auto everywhere = entries_seen_everywhere(view, parallel_for);
         for (int head = 0; head < view.n_head; ++head) {
           const std::vector<std::vector<double>> keys = keys_of(view, head / n_group);
           for (int row = 0; row < n_tokens; row += kEvery) {
             const int part = row / kPart, in_part = row % kPart, shift = n_tokens - part * kPart;
             const ReconstructionPass& pass = view.passes[static_cast<std::size_t>(part)];
             const float* of_prompt = view.all_q + (std::ptrdiff_t{row} * view.n_head + head) * d;
             const float* q = pass.q + (std::ptrdiff_t{in_part} * view.n_head + head) * d;
             const std::vector<double> expected = turned(of_prompt, d, view.rotation, shift);
             for (int c = 0; c < d; ++c) ASSERT_NEAR(q[c], expected[static_cast<std::size_t>(c)], 2e-4) << row;
             std::vector<std::vector<double>> seen = keys;
             if (!sees_all) {
               seen.clear();
               const RepeatedPart near = {.near_first = pass.near_first, .near_end = pass.near_end};
               const auto entries = entries_seen(everywhere, near);
               for (const std::int32_t i : entries[static_cast<std::size_t>(head / n_group)]) {
                 seen.push_back(keys[static_cast<std::size_t>(i)]);
               }
             }
             double sum = exponentials(expected, seen, view.shape.spec.scale, seen.size());
             const std::vector<double> unturned(of_prompt, of_prompt + d);
             if (view.layer == 0) {
               sum += exponentials(unturned, keys, view.shape.spec.scale, static_cast<std::size_t>(row) + 1);
             } else {
               const std::vector<std::vector<double>> own(keys.begin() + std::ptrdiff_t{part} * kPart, keys.end());
               sum += exponentials(unturned, own, view.shape.spec.scale, static_cast<std::size_t>(in_part) + 1);
             }
             ASSERT_NEAR(pass.log_sum_exp[in_part * view.n_head + head], std::log(sum), 1e-4)
                 << "layer " << view.layer << ", head " << head << ", row " << row;
           }
         }
       }});
  EXPECT_EQ(layers, (std::vector<int>{0, 1, 2, 3}));
}

TEST(LateRepeat, BeginsWithThePromptsRows) { expect_repeat(600, true); }  // three parts

// Behind the layers that are not repeated, rows of a longer prompt see what lies near their tokens, and some of the
// rest.
TEST(LateRepeat, SeesWhatItRepeatsAndWhatRunningTextAttendsTo) { expect_repeat(1500, false); }

// Rows see the eighth that reference rows attend to most, the first and last entries, and those near their part.
TEST(LateRepeat, SeesAnEighthEverywhere) {
  const auto engine = small_engine();
  Session session = engine->open(full_options());
  prefill_observed(
      session, random_tokens(400, 300, 5),
      {.needs = {.reference_rows = true}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel) {
         const auto everywhere = entries_seen_everywhere(view, parallel);
         LayerEvidence evidence(view, EvictionOptions{}, 0, parallel);
         const auto& rms = evidence.reference_rms();
         ASSERT_EQ(std::ssize(everywhere), view.n_kv_head);
         for (std::size_t h = 0; h < everywhere.size(); ++h) {
           const std::vector<std::int32_t>& entries = everywhere[h];
           EXPECT_TRUE(std::ranges::is_sorted(entries));
           EXPECT_EQ(std::ranges::adjacent_find(entries), entries.end());
           const auto has = [&](std::int32_t i) { return std::ranges::binary_search(entries, i); };
           for (std::int32_t i = 0; i < 4; ++i) EXPECT_TRUE(has(i));
           for (std::int32_t i = 368; i < 400; ++i) EXPECT_TRUE(has(i));
           float least = HUGE_VALF, most_left = 0;
           int n_chosen = 0;
           for (std::int32_t i = 4; i < 368; ++i) {
             const float of_entry = rms[h][static_cast<std::size_t>(i)];
             n_chosen += has(i) ? 1 : 0;
             (has(i) ? least : most_left) = has(i) ? std::min(least, of_entry) : std::max(most_left, of_entry);
           }
           EXPECT_GE(least, most_left);
           EXPECT_LE(n_chosen, 50);
           EXPECT_GE(n_chosen, 46);  // four of them may be the first
           const auto seen = entries_seen(everywhere, {.near_first = 100, .near_end = 200})[h];
           std::vector<std::int32_t> expected = entries;
           for (std::int32_t i = 100; i < 200; ++i) expected.push_back(i);
           std::ranges::sort(expected);
           expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
           EXPECT_EQ(seen, expected);
         }
       }});
}

}  // namespace
}  // namespace winnow::test
