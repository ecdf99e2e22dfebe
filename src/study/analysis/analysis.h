// Analyses what methods lose on a real prompt: the losses that the papers bound, the entries that later tokens turn out
// to need, and the change of the next tokens' probabilities.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "study/losses.h"
#include "winnow/session.h"

namespace winnow {

// A method at a budget.
struct AnalysedCut {
  EvictionOptions method;
  Budget budget;
};

struct AnalysisOptions {
  std::vector<Token> context;       // read whole, then cut
  std::vector<Token> question;      // appended whole; may be empty
  std::vector<Token> continuation;  // tokens that follow; empty: the full cache's answer, decoded greedily
  int n_answer = 64;                // most tokens of that answer
  std::vector<AnalysedCut> cuts;
  std::function<bool(double part)> on_progress;  // 0 .. 1; false stops with Error(kCancelled)
};

// Shares of the entries for which a head's concentration is given (Ada-KV's figure).
inline constexpr std::array<double, 6> kConcentrationShares = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};

// Shares of the full cache's bytes in f16 for which the least possible loss is given.
inline constexpr std::array<double, 6> kByteShares = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
// Types of entries for which that loss is given.
inline constexpr std::array<EntryType, 3> kByteTypes = {EntryType::kF16, EntryType::kQ8_0, EntryType::kR4};
// The share of the importance that is lost if the bytes hold the most important entries; NaN for a type that does not
// fit a head's dimensions.
using LossByBytes = std::array<std::array<double, kByteShares.size()>, kByteTypes.size()>;

// The full cache's attention in one layer, over the last 32 rows of the context (Analysis::window).
struct LayerAttention {
  double dispersion = 0, shift = 0;                 // CAKE, summed over query heads
  std::vector<double> head_dispersion, head_shift;  // [n_head]
  double lava_entropy = 0;                          // LAVa's layer weight, 0 .. 1
  // [n_kv_head][kConcentrationShares] share of the prefix's attention that falls on such a share of its best entries:
  std::vector<std::vector<double>> concentration;
  std::vector<double> importance;     // [n_kv_head] sum of the oracle importance
  std::vector<LossByBytes> by_bytes;  // [n_kv_head] within shares of the head's own bytes
};

// The outcome of one cut in one layer.
struct LayerOutcome {
  LayerLosses losses;              // of the context's last row
  std::vector<std::int32_t> kept;  // [n_kv_head] entries of the context
  // [n_kv_head] by the oracle importance (largest attention x || v W_O ||_2 over the continuation's rows):
  std::vector<double> loss;         // importance of the entries that are not kept
  std::vector<double> least_loss;   // least possible loss with as many entries
  std::vector<double> recall;       // share of the most important entries, as many as are kept, that are kept
  std::vector<double> future_mass;  // share of the continuation's attention on the context that falls on kept entries
  // [n_kv_head] squared error of the attention output over the continuation's rows, after W_O, divided by the full
  // cache's square: with the entries as they are stored and the values that were refitted.
  std::vector<double> output_error;
};

// A cut's effect on the predictions of the continuation, against the full cache.
struct NextTokens {
  int n = 0;                                   // predictions
  double kl_mean = 0, kl_max = 0;              // nats, KL(full || cut)
  double perplexity = 0, perplexity_full = 0;  // of the continuation
  double agreement = 0;                        // share with the same most likely token
  double first_logits_l1 = 0;                  // mean |difference| of the first prediction's logits
};

struct CutOutcome {
  std::string method, budget;                       // text forms
  std::int64_t entries_kept = 0, entries_full = 0;  // of the layers that methods cut
  std::uint64_t bytes_kept = 0;                     // bytes of the entries as they are stored
  // [n_layer][n_kv_head] heads stored in 8 bits because the method's types would cost too much
  // (SessionStatistics::raised).
  std::vector<std::vector<bool>> raised;
  std::vector<LayerOutcome> layers;  // [n_layer]; empty vectors for a layer that is not cut
  // Sums over the model, as shares of all importance:
  double oracle_loss = 0;  // LU-KV's loss
  double least_loss = 0;   // with these head budgets and a perfect ranking
  double best_loss = 0;    // with this total, perfect budgets and a perfect ranking
  double best_allocation =
      0;                    // with this total and this scorer's ranking, perfect budgets (a lower bound: convexified)
  double output_error = 0;  // as LayerOutcome::output_error, over the model
  NextTokens next;

  double recall() const { return 1 - oracle_loss; }
  double optimality_gap() const { return oracle_loss - best_loss; }
  double allocation_gap() const { return oracle_loss - best_allocation; }
};

struct Analysis {
  ModelInfo model;
  std::vector<Token> context, question, continuation;
  std::vector<std::string>
      context_text;        // [n_context] whole characters; one of several tokens belongs to the last of them
  bool is_answer = false;  // the continuation is the full cache's own
  int window = 0;          // rows of LayerAttention
  std::vector<LayerAttention> layers;  // [n_layer]; empty vectors for a layer that is not cut
  std::uint64_t bytes_full = 0;        // of the context's entries in f16
  LossByBytes by_bytes = {};           // for bytes that are shared freely among all heads
  std::vector<CutOutcome> cuts;
  // [n_cuts][n_layer][n_kv_head] positions that are kept, ascending; no heads in a layer that is not cut.
  std::vector<std::vector<std::vector<std::vector<std::int32_t>>>> positions;
};

// Analyses all cuts in one pass over the context. Throws what Engine::open and prefill throw, and
// Error(kInvalidArgument) for a method that cannot be judged (`full`) and a continuation of less than 2 tokens.
Analysis analyse(const std::shared_ptr<Engine>& engine, const AnalysisOptions& options);

// Returns a sentence about every loss that exceeds one of its bounds by more than rounding: none, unless something is
// wrong.
std::vector<std::string> find_violations(const Analysis& analysis);

}  // namespace winnow
