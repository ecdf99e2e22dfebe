#include "eviction/refit/value_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "eviction/refit/matrix_product.h"
#include "kernels/attention/softmax_row.h"

namespace winnow {
namespace {

using Matrix = std::vector<float>;  // row-major

constexpr float kUnseen = -103.0F;  // e^kUnseen is 0 in float32

constexpr int kFactorisations = 3;  // attempts before the values are left as they were

// Computes the Cholesky factor of the lower triangle of one small block; returns false if a pivot is not positive. Each
// column is subtracted from the rest of the triangle before the next column is taken: sums along a row would be slower,
// as the compiler must not change their order.
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

constexpr int kBlock = 48;
constexpr int kStrip = 4 * kBlock;

// Computes the inverse of the lower triangle l of one small block: out [n][kBlock].
void invert_block(const float* l, int n, int stride, float* out) {
  std::fill_n(out, n * kBlock, 0.0F);
  for (int i = 0; i < n; ++i) {
    float* row = out + std::ptrdiff_t{i} * kBlock;
    for (int j = 0; j < i; ++j) {
      const float factor = l[std::ptrdiff_t{i} * stride + j];
      const float* above = out + std::ptrdiff_t{j} * kBlock;
      for (int k = 0; k <= j; ++k) row[k] -= factor * above[k];
    }
    const float pivot = l[std::ptrdiff_t{i} * stride + i];
    for (int k = 0; k < i; ++k) row[k] /= pivot;
    row[i] = 1.0F / pivot;
  }
}

// The Cholesky factor of a matrix [n][n], with the inverses of its diagonal blocks, so that solving for a block is a
// product of matrices, too.
struct Factor {
  int n;
  Matrix l;         // [n][n], the lower triangle
  Matrix inverses;  // [n][kBlock]

  const float* inverse(int first) const { return inverses.data() + std::ptrdiff_t{first} * kBlock; }
};

// Replaces f.l = L L^T by L; returns false if that fails. Blocks to the right are updated by products of matrices.
bool factorise(Factor& f) {
  const int n = f.n;
  f.inverses.resize(static_cast<std::size_t>(n) * kBlock);
  Matrix before;  // the panel below a block: [rows][size]
  for (int first = 0; first < n; first += kBlock) {
    const int size = std::min(kBlock, n - first);
    float* diagonal = f.l.data() + std::ptrdiff_t{first} * n + first;
    if (!factorise_block(diagonal, size, n)) return false;
    invert_block(diagonal, size, n, f.inverses.data() + std::ptrdiff_t{first} * kBlock);
    const int n_below = n - first - size;
    float* panel = diagonal + std::ptrdiff_t{size} * n;
    before.resize(static_cast<std::size_t>(n_below * size));
    for (int i = 0; i < n_below; ++i) {
      std::copy_n(panel + std::ptrdiff_t{i} * n, size, before.data() + std::ptrdiff_t{i} * size);
    }
    multiply(n_below, size, size, 1.0F, {before.data(), size}, {f.inverse(first), kBlock, true}, 0.0F, panel, n);
    // Only the lower triangle is read later; strips skip most of the upper half.
    for (int i = 0; i < n_below; i += kStrip) {
      const int rows = std::min(kStrip, n_below - i);
      const float* left = panel + std::ptrdiff_t{i} * n;
      multiply(rows, i + rows, size, -1.0F, {left, n}, {panel, n, true}, 1.0F,
               f.l.data() + std::ptrdiff_t{first + size + i} * n + first + size, n);
    }
  }
  return true;
}

// Replaces b [n][width] by (L L^T)^-1 b.
void solve(const Factor& f, float* b, int width) {
  const int n = f.n;
  const auto row = [&](int i) { return b + std::ptrdiff_t{i} * width; };
  Matrix before(static_cast<std::size_t>(kBlock * width));
  const auto solve_block = [&](int first, int size, bool transposed) {
    std::copy_n(row(first), size * width, before.data());
    multiply(size, width, size, 1.0F, {f.inverse(first), kBlock, transposed}, {before.data(), width}, 0.0F, row(first),
             width);
  };
  for (int first = 0; first < n; first += kBlock) {
    const int size = std::min(kBlock, n - first);
    multiply(size, width, first, -1.0F, {f.l.data() + std::ptrdiff_t{first} * n, n}, {b, width}, 1.0F, row(first),
             width);
    solve_block(first, size, false);
  }
  for (int end = n; end > 0;) {
    const int first = (end - 1) / kBlock * kBlock;
    multiply(end - first, width, n - end, -1.0F, {f.l.data() + std::ptrdiff_t{end} * n + first, n, true},
             {row(end), width}, 1.0F, row(first), width);
    solve_block(first, end - first, true);
    end = first;
  }
}

// Returns the attention of the rows over the kept entries alone, x [n_rows][n_kept]; rows whose attention on them is
// zero or not finite are zero.
Matrix attention(const ReferenceRows& rows, const KeptEntries& kept, const ValueFitOptions& options) {
  const int d = options.key_dim;
  Matrix x(static_cast<std::size_t>(rows.n_rows) * static_cast<std::size_t>(kept.n_kept));
  multiply(rows.n_rows, kept.n_kept, d, options.scale, {rows.q, d}, {kept.keys, d, true}, 0.0F, x.data(), kept.n_kept);
  for (int r = 0; r < rows.n_rows; ++r) {
    float* row = x.data() + std::ptrdiff_t{r} * kept.n_kept;
    const float sink = rows.sink_logits != nullptr ? rows.sink_logits[r] : -std::numeric_limits<float>::infinity();
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
  // Only the lower triangle is read; strips skip most of the upper half.
  for (int first = 0; first < side; first += kStrip) {
    const int rows_of_strip = std::min(kStrip, side - first);
    const float* left = x.data() + (by_entries ? first : std::ptrdiff_t{first} * t);
    multiply(rows_of_strip, first + rows_of_strip, by_entries ? n : t, 1.0F, {left, t, by_entries},
             {x.data(), t, !by_entries}, 0.0F, gram.data() + std::ptrdiff_t{first} * side, side);
  }
  double squares = 0;  // sum of the squares of x: the trace of either Gram matrix
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
    Factor factor{.n = side, .l = gram, .inverses = {}};
    const auto ridge = static_cast<float>(lambda * mean_diagonal + 1e-12);
    for (int i = 0; i < side; ++i) factor.l[static_cast<std::size_t>(i) * static_cast<std::size_t>(side + 1)] += ridge;
    if (!factorise(factor)) continue;
    solve(factor, right.data(), d);
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
