// Values refitted: what stays of a head's entries gets the values with which attention's output over them is nearest to
// that over all entries, for reference queries. A ridge regression anchored at the values as they were: entries that no
// reference row sees stay as they are. Attention Matching (Zweiger, Fu, Guo, Kim, 2026), its value step.
#pragma once

#include <cstdint>

namespace winnow {

// Reference rows of all query heads of one KV head's group, and their attention over all entries.
struct ReferenceRows {
  int n_rows = 0;
  const float* q = nullptr;            // [n_rows][key_dim], rotated for positions after the prompt
  const float* log_sum_exp = nullptr;  // [n_rows] natural log of the softmax denominators
  const float* target = nullptr;       // [n_rows][value_dim] attention's output
  const float* sinks = nullptr;        // [n_rows] logits that take weight and have no value; null: none
};

// The kept entries of one KV head.
struct KeptEntries {
  int n_kept = 0;
  const float* keys = nullptr;    // [n_kept][key_dim], as they will be read: decoded where they are coded
  const float* values = nullptr;  // [n_kept][value_dim], as they were
};

struct ValueFitOptions {
  int key_dim;
  int value_dim;
  float scale;           // of the scores, usually 1/sqrt(key_dim)
  float soft_cap = 0;    // a score s becomes soft_cap * tanh(s / soft_cap); 0: s
  float lambda = 0.03F;  // ridge, times the mean of the diagonal of X^T X
};

// out [n_kept][value_dim] = V + (X^T X + r I)^-1 X^T (Y - X V), X the attention of the rows over the kept entries
// alone, r = lambda mean(diag X^T X) + 1e-12. With fewer rows than entries the same from the n_rows x n_rows side. Rows
// whose attention on the kept entries is zero or not finite are left out. A factorisation that fails raises lambda
// tenfold; after three, or where the result is not finite, out is a copy of the values. Returns whether they were
// fitted.
//
// float32, on the calling thread where it is one of several (else oneDNN may use more). Takes about
// 4 (n_rows * n_kept + min(n_rows, n_kept)^2) bytes.
bool fit_values(const ReferenceRows& rows, const KeptEntries& kept, const ValueFitOptions& options, float* out);

}  // namespace winnow
