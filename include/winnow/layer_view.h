// The view of a layer that eviction works from: the engine fills a LayerView after the layer's attention, and
// LayerEvidence and the scorers read it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "winnow/api.h"
#include "winnow/entries.h"

namespace WINNOW_API winnow {

class EntryStatistics;

// Runs body(i) for i in [0, n_items) on the engine's threads and returns when all are done. An exception thrown by body
// is rethrown here.
using ParallelFor = std::function<void(int n_items, const std::function<void(int)>& body)>;

// Reductions of the observation window's attention rows, per query head and column (WindowStatistics).
enum WindowColumn : unsigned {
  kWindowMean = 1,
  kWindowM2 = 2,
  kWindowMax = 4,
  kWindowLast = 8,
  kWindowEntropy = 16,
};

// The evidence that the engine must save while it runs a layer. Statistics that can be computed from the stored entries
// and the window's queries afterwards (norms and the like) are not listed: LayerEvidence computes them on demand.
struct EvidenceNeeds {
  int window_rows = 0;               // number of last query rows to save, rotated (the observation window)
  bool log_sum_exp = false;          // log-sum-exp of every row's scores (h2o)
  bool all_queries = false;          // every row's rotated queries (h2o over the whole matrix)
  bool query_moments = false;        // mean and covariance of the pre-rotation queries (expected-attention)
  int moments_skip = 0;              // number of the prompt's first tokens that are left out of the moments
  bool output_projection = false;    // W_O in float32 (critical)
  bool reconstruction_pass = false;  // a context-reconstruction pass (kvzip), in a prefill layer by layer
  bool late_repeat = false;          // the same, which begins in a later layer (combined)
  bool reconstruction_only = false;  // there are no scores without that pass: a stored cache cannot be cut again
  bool reference_rows = false;       // query rows of the prompt or turn, rotated to positions after it
  bool earlier_scores = false;       // entries keep the best score that they had in any cut
  unsigned window_columns = 0;       // WindowColumn bits: reductions that LayerEvidence computes, nothing to save

  // Returns whether the prompt is read a second time.
  bool repeats_prompt() const { return reconstruction_pass || late_repeat; }

  EvidenceNeeds& operator|=(const EvidenceNeeds& other);
  bool operator==(const EvidenceNeeds& other) const = default;
};

// So many reference rows, the last ones, are those of the last tokens of the prompt or turn.
inline constexpr int kLastReferenceRows = 48;

// The rotary position embedding of a layer's queries and keys (expected-attention).
struct RotationView {
  bool interleaved = false;          // pairs (2i, 2i+1); else (i, i + n_dims/2)
  int n_dims = 0;                    // rotated dimensions of a head, the first ones; 0: none
  const float* frequency = nullptr;  // [n_dims/2] radians per position, scaling included
  float magnitude = 1.0F;            // factor on sine and cosine (YaRN)
};

// One chunk of KVzip's context-reconstruction pass (arXiv 2505.23416), or of a repeat that begins in a later layer: its
// tokens follow the context at positions n_tokens, n_tokens + 1, ...
struct ReconstructionPass {
  int n_rows = 0;
  const float* q = nullptr;            // [n_rows][n_head][key_dim], rotated; null: EntryStatistics has them
  const float* log_sum_exp = nullptr;  // [n_rows][n_head], over what it sees and the pass's own rows so far
  // [n_rows] L2 norm of the residual stream before the layer (kvzip+); null in a late repeat.
  const float* input_norm = nullptr;
  std::int32_t first_row = 0;  // of the engine's pass
  // The positions near the tokens that the rows repeat, [near_first, near_end), where they look these up. A late repeat
  // sees little else; KVzip's pass sees everything.
  std::int32_t near_first = 0;
  std::int32_t near_end = std::numeric_limits<std::int32_t>::max();
};

// The view of one layer. Pointers of evidence that was not asked for (EvidenceNeeds) are null. All that it points at
// lives until the call returns that was given the view.
struct LayerView {
  int layer;   // index in the model
  int n_head;  // query heads (H)
  int n_kv_head;
  kernels::AttentionShape shape;                // of the layer; of_head() gives a head's
  std::int32_t n_tokens;                        // logical length N: the next position
  std::span<const kernels::HeadEntries> heads;  // [n_kv_head] stored entries, window included
  // [n_kv_head][key_dim], or null: factors on the keys that the model makes, powers of two with whose inverses its
  // queries are multiplied, so that codes keep more of them (models with biases on their keys). All keys and queries
  // here have them.
  const float* key_scales = nullptr;
  // Null: the entries' rows can be read. Else they lie on a device, maybe with the rows of all_q and passes, and only
  // this measures and copies them, and makes what w_o points to; LayerEvidence::host_view() shows all that.
  EntryStatistics* statistics = nullptr;
  const float* window_q = nullptr;  // [n_window_rows][n_head][key_dim], rotated; the last row is token N-1
  int n_window_rows = 0;
  int n_query_rows = 0;                      // number of last tokens that the next two fields cover
  const float* log_sum_exp = nullptr;        // [n_query_rows][n_head]
  const float* all_q = nullptr;              // [n_query_rows][n_head][key_dim], rotated (h2o)
  bool has_all_queries = false;              // all_q was asked for
  const double* query_mean = nullptr;        // [n_head][key_dim], of the pre-rotation queries
  const double* query_covariance = nullptr;  // [n_head][key_dim][key_dim], divided by the number of queries
  // Reference rows stand for queries to come: query rows spread over the prompt or turn, and its last ones, each
  // rotated to a position after it. Every one of them sees all entries.
  const float* reference_q = nullptr;  // [n_reference_rows][n_head][key_dim]
  int n_reference_rows = 0;
  const float* reference_log_sum_exp = nullptr;  // [n_reference_rows][n_head]; null where the engine has none
  // [n_kv_head] the best scores that each head's first entries had in earlier cuts; empty before the first cut.
  std::span<const std::vector<float>> earlier_scores = {};
  RotationView rotation = {};                       // set with the moments
  std::span<const ReconstructionPass> passes = {};  // chunks of the context-reconstruction pass (kvzip)
  int n_embd = 0;                                   // D: numbers of a hidden state
  bool has_output_projection = false;               // w_o was asked for
  const float* w_o = nullptr;                       // [n_head][value_dim][n_embd], float32: the slices W_O[h]
};

}  // namespace winnow
