// What a policy may look at after a layer's attention: the engine fills a LayerView, the scorers read it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "winnow/api.h"
#include "winnow/entries.h"

namespace WINNOW_API winnow {

// Runs body(i) for i in [0, n_items) on the engine's threads and returns when all are done. An exception thrown by body
// is rethrown here.
using ParallelFor = std::function<void(int n_items, const std::function<void(int)>& body)>;

// Reductions of the window rows per query head and column.
enum WindowColumn : unsigned {
  kWindowMean = 1,
  kWindowM2 = 2,
  kWindowMax = 4,
  kWindowLast = 8,
  kWindowEntropy = 16,
};

// What the engine must save while it runs the layer. Everything that can be computed from the stored entries and the
// window's queries afterwards (statistics, norms) is not listed: the policy computes it on demand.
struct EvidenceNeeds {
  int window_rows = 0;               // the last so many query rows, rotated
  bool log_sum_exp = false;          // of every row (h2o)
  bool all_queries = false;          // every row's rotated queries (h2o over the whole matrix)
  bool query_moments = false;        // running mean and covariance of the pre-rotation queries (expected-attention)
  int moments_skip = 0;              // first tokens of the prompt left out of the moments
  bool output_projection = false;    // W_O in float32 (critical)
  bool reconstruction_pass = false;  // kvzip, of a prompt that is read layer by layer
  bool reconstruction_only = false;  // there are no scores without it: what is stored cannot be cut again
  bool reference_rows = false;       // rows of the prompt or turn, as if they followed it
  bool earlier_scores = false;       // entries stay with the best score that they ever had
  unsigned window_columns = 0;       // WindowColumn bits: reductions that the policy takes itself, nothing to save

  EvidenceNeeds& operator|=(const EvidenceNeeds& other);
  bool operator==(const EvidenceNeeds& other) const = default;
};

// How the model rotates queries and keys (expected-attention).
struct RotationView {
  bool interleaved = false;          // pairs (2i, 2i+1); else (i, i + n_dims/2)
  int n_dims = 0;                    // rotated dimensions of a head, the first ones; 0: none
  const float* frequency = nullptr;  // [n_dims/2] radians per position, scaling included
  float magnitude = 1.0F;            // factor on sine and cosine (YaRN)
};

// One chunk of KVzip's context-reconstruction pass: its tokens follow the context at positions n_tokens, n_tokens + 1,
// ...
struct ReconstructionPass {
  int n_rows = 0;
  const float* q = nullptr;            // [n_rows][n_head][key_dim], rotated
  const float* log_sum_exp = nullptr;  // [n_rows][n_head], of the whole context and the pass's own rows so far
  const float* input_norm = nullptr;   // [n_rows] L2 norm of the residual stream before the layer (kvzip+)
};

// One layer, as the policy sees it. Views live until the call returns.
struct LayerView {
  int layer;
  int n_head;  // query heads (H)
  int n_kv_head;
  kernels::AttentionShape shape;                // of the layer: see of_head
  std::int32_t n_tokens;                        // logical length N: the next position
  std::span<const kernels::HeadEntries> heads;  // [n_kv_head] stored entries, window included
  const float* window_q = nullptr;              // [n_window_rows][n_head][key_dim], rotated; the last row is token N-1
  int n_window_rows = 0;
  int n_query_rows = 0;                      // rows of the next two: the last so many tokens
  const float* log_sum_exp = nullptr;        // [n_query_rows][n_head]
  const float* all_q = nullptr;              // [n_query_rows][n_head][key_dim], rotated (h2o)
  const double* query_mean = nullptr;        // [n_head][key_dim], of the pre-rotation queries
  const double* query_covariance = nullptr;  // [n_head][key_dim][key_dim], divided by the number of queries
  // Rows of the prompt or turn spread over it, and its last ones, each rotated for a position after it: what queries to
  // come look like. Every one sees all entries.
  const float* reference_q = nullptr;  // [n_reference_rows][n_head][key_dim]
  int n_reference_rows = 0;
  const float* reference_log_sum_exp = nullptr;  // [n_reference_rows][n_head], where the engine has them
  // [n_kv_head] of each head's first entries, in earlier cuts; of none in the first.
  std::span<const std::vector<float>> earlier_scores = {};
  RotationView rotation = {};                       // with the moments
  std::span<const ReconstructionPass> passes = {};  // kvzip
  int n_embd = 0;                                   // D
  const float* w_o = nullptr;                       // [n_head][value_dim][n_embd], float32: the slices W_O[h]
};

}  // namespace winnow
