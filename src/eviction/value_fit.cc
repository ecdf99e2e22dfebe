#include "eviction/value_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "eviction/matrix_product.h"
#include "kernels/softmax_row.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Matrix = std::vector<float>;  // row-major

constexpr float kUnseen = -103.0F;  // e^this is nothing in float32

constexpr int kFactorisations = 3;  // before the values are left as they were

// A column's share is subtracted from all that is to the right of it before the next column is taken: sums along a row
// would be slower, as the compiler must not change their order.

// Cholesky of the lower triangle of one small block; false where a pivot is not positive.
bool factorise_block(float* a, int n, int stride) {
  const auto row = [&](int i) { return a + std::ptrdiff_t{i} * stride; };
  std::vector<float> column(static_cast<std::size_t>(n));
  for (int j = 0; j < n; ++j) {
    const float pivot = row(j)[j];
    if (!(pivot > 0.0F) || !std::isfinite(pivot)) return false;
    row(j)[j] = std::sqrt(pivot);
    for (int i = j + 1; i < n; ++i) column[static_cast<std::size_t>(i)] = row(i)[j] /= row(j)[j];
    for (int i = j + 1; i < n; ++i) {
      const float factor = row(i)[j];
      for (int k = j + 1; k <= i; ++k) row(i)[k] -= factor * column[static_cast<std::size_t>(k)];
    }
  }
  return true;
}

// row [n] becomes what follows below the factor L: row L^-T. columns: L transposed, [n][n].
void solve_row(const float* columns, int n, float* row) {
  for (int j = 0; j < n; ++j) {
    const float* column = columns + std::ptrdiff_t{j} * n;
    const float x = row[j] /= column[j];
    for (int k = j + 1; k < n; ++k) row[k] -= x * column[k];
  }
}

constexpr int kBlock = 48;
constexpr int kStrip = 4 * kBlock;

// a [n][n] = L L^T, in the lower triangle. Blocks to the right are updated by products of matrices.
bool factorise(Matrix& a, int n) {
  Matrix columns(kBlock * kBlock);  // of a block's factor
  for (int first = 0; first < n; first += kBlock) {
    const int size = std::min(kBlock, n - first);
    float* diagonal = a.data() + std::ptrdiff_t{first} * n + first;
    if (!factorise_block(diagonal, size, n)) return false;
    const int n_below = n - first - size;
    float* panel = diagonal + std::ptrdiff_t{size} * n;
    for (int i = 0; i < size; ++i) {
      for (int j = i; j < size; ++j)
        columns[static_cast<std::size_t>(i * size + j)] = diagonal[std::ptrdiff_t{j} * n + i];
    }
    for (int i = 0; i < n_below; ++i) solve_row(columns.data(), size, panel + std::ptrdiff_t{i} * n);
    // Only the lower triangle is read later; strips of blocks keep most of the other half out.
    for (int i = 0; i < n_below; i += kStrip) {
      const int rows = std::min(kStrip, n_below - i);
      const float* left = panel + std::ptrdiff_t{i} * n;
      multiply(rows, i + rows, size, -1.0F, {left, n}, {panel, n, true}, 1.0F,
               a.data() + std::ptrdiff_t{first + size + i} * n + first + size, n);
    }
  }
  return true;
}

// b [n][width] becomes (L L^T)^-1 b.
void solve(const Matrix& l, int n, float* b, int width) {
  const auto row = [&](int i) { return b + std::ptrdiff_t{i} * width; };
  const auto subtract = [&](int to, int from, float factor) {
    for (int c = 0; c < width; ++c) row(to)[c] -= factor * row(from)[c];
  };
  const auto divide = [&](int i, float by) {
    for (int c = 0; c < width; ++c) row(i)[c] /= by;
  };
  const auto at = [&](int i, int j) {
    return l[static_cast<std::size_t>(i) * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)];
  };
  for (int first = 0; first < n; first += kBlock) {
    const int end = std::min(first + kBlock, n);
    multiply(end - first, width, first, -1.0F, {l.data() + std::ptrdiff_t{first} * n, n}, {b, width}, 1.0F, row(first),
             width);
    for (int i = first; i < end; ++i) {
      for (int j = first; j < i; ++j) subtract(i, j, at(i, j));
      divide(i, at(i, i));
    }
  }
  for (int end = n; end > 0;) {
    const int first = (end - 1) / kBlock * kBlock;
    multiply(end - first, width, n - end, -1.0F, {l.data() + std::ptrdiff_t{end} * n + first, n, true},
             {row(end), width}, 1.0F, row(first), width);
    for (int i = end - 1; i >= first; --i) {
      for (int j = i + 1; j < end; ++j) subtract(i, j, at(j, i));
      divide(i, at(i, i));
    }
    end = first;
  }
}

// Attention of the rows over the kept entries alone: x [n_rows][n_kept]; rows that see nothing are zero.
Matrix attention(const ReferenceRows& rows, const KeptEntries& kept, const ValueFitOptions& options) {
  const int d = options.key_dim;
  Matrix x(static_cast<std::size_t>(rows.n_rows) * static_cast<std::size_t>(kept.n_kept));
  multiply(rows.n_rows, kept.n_kept, d, options.scale, {rows.q, d}, {kept.keys, d, true}, 0.0F, x.data(), kept.n_kept);
  for (int r = 0; r < rows.n_rows; ++r) {
    float* row = x.data() + std::ptrdiff_t{r} * kept.n_kept;
    const float sink = rows.sinks != nullptr ? rows.sinks[r] : -std::numeric_limits<float>::infinity();
    const float largest = kernels::softmax_row(row, kept.n_kept, options.soft_cap, sink);
    const float most = largest - rows.log_sum_exp[r];  // attention on an entry, over all entries, is at most e^most
    if (!(most > kUnseen) || !std::isfinite(most)) std::fill_n(row, kept.n_kept, 0.0F);
  }
  return x;
}

bool is_zero_row(const Matrix& x, int row, int n) {
  const auto first = x.begin() + std::ptrdiff_t{row} * n;
  return std::all_of(first, first + n, [](float a) { return a == 0.0F; });
}

}  // namespace

bool fit_values(const ReferenceRows& rows, const KeptEntries& kept, const ValueFitOptions& options, float* out) {
  const int d = options.value_dim, n = rows.n_rows, t = kept.n_kept;
  const auto width = static_cast<std::size_t>(d);
  const std::size_t n_values = static_cast<std::size_t>(t) * width;
  std::copy_n(kept.values, n_values, out);
  if (n == 0 || t == 0) return false;

  const Matrix x = attention(rows, kept, options);
  Matrix residual(rows.target, rows.target + static_cast<std::size_t>(n) * width);  // Y - X V
  multiply(n, d, t, -1.0F, {x.data(), t}, {kept.values, d}, 1.0F, residual.data(), d);
  for (int r = 0; r < n; ++r) {
    if (is_zero_row(x, r, t)) std::fill_n(residual.begin() + std::ptrdiff_t{r} * d, d, 0.0F);
  }

  const bool by_entries = t <= n;  // the smaller side
  const int side = by_entries ? t : n;
  Matrix gram(static_cast<std::size_t>(side) * static_cast<std::size_t>(side));
  // Only the lower triangle is read; strips keep most of the other half out.
  for (int first = 0; first < side; first += kStrip) {
    const int rows_of_strip = std::min(kStrip, side - first);
    const float* left = x.data() + (by_entries ? first : std::ptrdiff_t{first} * t);
    multiply(rows_of_strip, first + rows_of_strip, by_entries ? n : t, 1.0F, {left, t, by_entries},
             {x.data(), t, !by_entries}, 0.0F, gram.data() + std::ptrdiff_t{first} * side, side);
  }
  double squares = 0;  // of x: the trace of either side
  for (int i = 0; i < side; ++i)
    squares += static_cast<double>(gram[static_cast<std::size_t>(i) * (static_cast<std::size_t>(side) + 1)]);
  const double mean_diagonal = squares / t;
  Matrix right = residual;
  if (by_entries) {
    right.assign(n_values, 0.0F);
    multiply(t, d, n, 1.0F, {x.data(), t, true}, {residual.data(), d}, 0.0F, right.data(), d);
  }

  double lambda = static_cast<double>(options.lambda);
  for (int attempt = 0; attempt < kFactorisations; ++attempt, lambda *= 10) {
    Matrix factor = gram;
    const auto ridge = static_cast<float>(lambda * mean_diagonal + 1e-12);
    for (int i = 0; i < side; ++i) factor[static_cast<std::size_t>(i) * static_cast<std::size_t>(side + 1)] += ridge;
    if (!factorise(factor, side)) continue;
    solve(factor, side, right.data(), d);
    if (by_entries) {
      for (std::size_t i = 0; i < n_values; ++i) out[i] += right[i];
    } else {
      multiply(t, d, n, 1.0F, {x.data(), t, true}, {right.data(), d}, 1.0F, out, d);
    }
    if (std::all_of(out, out + n_values, [](float v) { return std::isfinite(v); })) return true;
    break;
  }
  std::copy_n(kept.values, n_values, out);
  return false;
}

}  // namespace winnow
