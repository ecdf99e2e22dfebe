// Refitting of values (fit=values): the kept entries of a head get the values with which attention's output over them
// is nearest to that over all entries, for reference queries. It is a ridge regression anchored at the original values,
// so that entries to which no reference row attends stay as they are. Source: the value step of Attention Matching
// (Zweiger, Fu, Guo, Kim, 2026).
#pragma once

#include <cstdint>

namespace winnow {

// The reference rows of all query heads of one KV head's GQA group, and their attention over all entries.
struct ReferenceRows {
  int n_rows = 0;
  const float* q = nullptr;            // [n_rows][key_dim], rotated for positions after the prompt
  const float* log_sum_exp = nullptr;  // [n_rows] natural log of the softmax denominators
  const float* target = nullptr;       // [n_rows][value_dim] attention's output over all entries
  const float* sink_logits = nullptr;  // [n_rows] logits that take weight and have no value; null: none
};

// The kept entries of one KV head.
struct KeptEntries {
  int n_kept = 0;
  const float* keys = nullptr;    // [n_kept][key_dim], as attention will read them: dequantised if they are quantised
  const float* values = nullptr;  // [n_kept][value_dim], the original ones
};

// The dimensions of attention and the strength of the ridge.
struct ValueFitOptions {
  int key_dim;
  int value_dim;
  float scale;           // softmax scale, usually 1/sqrt(key_dim)
  float soft_cap = 0;    // a score s becomes soft_cap * tanh(s / soft_cap); 0: stays s
  float lambda = 0.03F;  // ridge, as a multiple of the mean of the diagonal of X^T X
};

// Writes out [n_kept][value_dim] = V + (X^T X + r I)^-1 X^T (Y - X V) and returns true. V are the kept values, Y the
// rows' targets, X the attention of the rows over the kept entries alone, r = lambda mean(diag X^T X) + 1e-12. With
// fewer rows than entries the same is computed from the n_rows x n_rows side. Rows whose attention on the kept entries
// is zero or not finite are left out. A factorisation that fails raises lambda tenfold. After three failures, or if the
// result is not finite, out becomes a copy of the values, and false is returned.
//
// Computes in float32, on the calling thread if that is one of several (else oneDNN may use more), with about
// 4 (n_rows * n_kept + min(n_rows, n_kept)^2) bytes of memory.
bool fit_values(const ReferenceRows& rows, const KeptEntries& kept, const ValueFitOptions& options, float* out);

}  // namespace winnow
