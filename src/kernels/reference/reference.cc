#include "kernels/reference/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/entries/rotated_codes.h"

namespace winnow::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::uint16_t read_u16(const std::byte* p) {
  std::uint16_t u;
  std::memcpy(&u, p, sizeof(u));
  return u;
}

double half_value(std::uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa ? std::nan("") : sign * kInfinity;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

std::vector<std::vector<double>> all_rows(const AttentionShape& shape, const HeadEntries& entries, RowKind kind) {
  const int n = kind == RowKind::kKey ? shape.key_dim : shape.value_dim;
  std::vector<std::vector<double>> rows;
  for (const EntryRun& run : entries.runs) {
    for (int i = 0; i < run.n_entries; ++i) {
      rows.push_back(row(row_type(run, kind), row_at(shape, run, kind, i), n));
      if (kind == RowKind::kValue || run.origin == nullptr) continue;
      const std::vector<double> origin = row(EntryType::kF16, run.origin, n);
      for (std::size_t c = 0; c < origin.size(); ++c) rows.back()[c] += origin[c];
    }
  }
  return rows;
}

std::vector<int> all_positions(const HeadEntries& entries) {
  std::vector<int> positions;
  for (const EntryRun& run : entries.runs) run.positions.append_to(positions, run.n_entries);
  return positions;
}

double score(const AttentionShape& shape, const float* q, const std::vector<double>& key) {
  double dot = 0;
  for (std::size_t i = 0; i < key.size(); ++i) dot += static_cast<double>(q[i]) * key[i];
  const double scaled = dot * static_cast<double>(shape.spec.scale);
  const double cap = static_cast<double>(shape.spec.soft_cap);
  return cap == 0 ? scaled : cap * std::tanh(scaled / cap);
}

// Returns a row of r4 or r3, dequantised by the definition, with the Hadamard matrix written out.
std::vector<double> coded_row(EntryType type, const std::byte* src, int n) {
  const int block = code_block(n);
  const int half = 1 << (code_bits(type) - 1);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
  std::vector<float> scales(static_cast<std::size_t>(n / block));
  unpack_codes(type, src, n, codes, scales);
  std::vector<double> levels(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const int code = codes[static_cast<std::size_t>(i)];
    const auto at = static_cast<std::size_t>(code < half ? half - 1 - code : code - half);
    const double magnitude = static_cast<double>(code_magnitudes(code_bits(type))[at]);
    levels[static_cast<std::size_t>(i)] =
        static_cast<double>(scales[static_cast<std::size_t>(i / block)]) * (code < half ? -magnitude : magnitude);
  }
  std::vector<double> numbers(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const int first = i / block * block;
    double sum = 0;
    for (int j = 0; j < block; ++j) {
      const bool negative = std::popcount(static_cast<unsigned>((i - first) & j)) % 2 == 1;
      sum += (negative ? -1 : 1) * levels[static_cast<std::size_t>(first + j)];
    }
    numbers[static_cast<std::size_t>(i)] = sum / std::sqrt(block);
  }
  return numbers;
}

// Returns the softmax weights of a query head of the group from its scores; scores of -inf are not visible.
Weights softmax(const AttentionShape& shape, int g, std::vector<double> scores) {
  const double sink = shape.spec.sink_logits != nullptr ? static_cast<double>(shape.spec.sink_logits[g]) : -kInfinity;
  double high = sink;
  for (const double s : scores) high = std::max(high, s);
  if (high == -kInfinity) return {std::vector<double>(scores.size(), 0.0), -kInfinity};
  double sum = std::exp(sink - high);
  for (const double s : scores) sum += std::exp(s - high);
  for (double& s : scores) s = std::exp(s - high) / sum;
  return {std::move(scores), high + std::log(sum)};
}

// Keys, values and positions of a head, unpacked once for many rows.
struct Head {
  Head(const AttentionShape& head_shape, const HeadEntries& entries)
      : shape(head_shape),
        keys(all_rows(shape, entries, RowKind::kKey)),
        values(all_rows(shape, entries, RowKind::kValue)),
        positions(all_positions(entries)) {}

  Weights weights(const QueryRows& rows, int r, int g) const {
    const float* q = rows.q + r * rows.row_stride + g * shape.key_dim;
    std::vector<double> scores(keys.size(), -kInfinity);
    for (int i = 0; i < rows.n_visible + r && i < static_cast<int>(keys.size()); ++i) {
      const auto entry = static_cast<std::size_t>(i);
      const bool in_window =
          shape.spec.sliding_window <= 0 || positions[entry] > rows.first_position + r - shape.spec.sliding_window;
      if (in_window) scores[entry] = score(shape, q, keys[entry]);
    }
    return softmax(shape, g, std::move(scores));
  }

  void add_output(const std::vector<double>& a, double* out) const {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < values[i].size(); ++j) out[j] += a[i] * values[i][j];
    }
  }

  const AttentionShape& shape;
  std::vector<std::vector<double>> keys, values;  // [n_entries][key_dim], [n_entries][value_dim]
  std::vector<int> positions;                     // [n_entries]
};

enum class Norm { kL1, kL2 };

double norm_of(const std::vector<double>& row, Norm norm) {
  double sum = 0;
  for (const double x : row) sum += norm == Norm::kL1 ? std::abs(x) : x * x;
  return norm == Norm::kL1 ? sum : std::sqrt(sum);
}

std::vector<double> norms(const AttentionShape& shape, const HeadEntries& entries, RowKind kind, Norm norm) {
  std::vector<double> out;
  for (const std::vector<double>& r : all_rows(shape, entries, kind)) out.push_back(norm_of(r, norm));
  return out;
}

}  // namespace

std::vector<double> row(EntryType type, const std::byte* src, int n) {
  if (code_bits(type) > 0) return coded_row(type, src, n);
  std::vector<double> out;
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t block = at / 32;
    const std::size_t j = at % 32;
    if (type == EntryType::kF32) {
      float f;
      std::memcpy(&f, src + at * sizeof(f), sizeof(f));
      out.push_back(static_cast<double>(f));
    } else if (type == EntryType::kF16) {
      out.push_back(half_value(read_u16(src + at * 2)));
    } else if (type == EntryType::kBF16) {
      out.push_back(static_cast<double>(std::bit_cast<float>(std::uint32_t{read_u16(src + at * 2)} << 16)));
    } else if (type == EntryType::kQ8_0) {
      const std::byte* b = src + block * 34;
      out.push_back(half_value(read_u16(b)) * static_cast<std::int8_t>(b[2 + j]));
    } else {
      const std::byte* b = src + block * 18;
      const int both = static_cast<int>(b[2 + j % 16]);
      out.push_back(half_value(read_u16(b)) * ((j < 16 ? both & 15 : both >> 4) - 8));
    }
  }
  return out;
}

std::uint16_t half_bits(double x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7E00);
  // Neighbouring float16 numbers are 2^(exponent - 10) apart.
  const double unit = std::ldexp(1.0, std::max(x == 0 ? -14 : std::ilogb(x), -14) - 10);
  const double rounded = std::min(std::nearbyint(std::abs(x) / unit) * unit, 65504.0);
  if (rounded < std::ldexp(1.0, -14))
    return static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(rounded, 24)));
  const int exponent = std::ilogb(rounded);
  const int mantissa = static_cast<int>(std::ldexp(rounded, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | mantissa);
}

Weights weights(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, int r, int g) {
  return Head(shape, entries).weights(rows, r, g);
}

CausalResult causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows) {
  const Head head(shape, entries);
  CausalResult result;
  const auto d = static_cast<std::size_t>(shape.value_dim);
  for (int r = 0; r < rows.n_rows; ++r) {
    for (int g = 0; g < shape.n_group; ++g) {
      const Weights w = head.weights(rows, r, g);
      result.log_sum_exp.push_back(w.log_sum_exp);
      result.out.resize(result.out.size() + d, 0.0);
      head.add_output(w.a, result.out.data() + result.out.size() - d);
    }
  }
  return result;
}

std::vector<double> decode_attention(const AttentionShape& shape, const DecodeSlices& slices) {
  const Head head(shape, slices.entries);
  const auto d = static_cast<std::size_t>(shape.value_dim);
  std::vector<double> out(d * static_cast<std::size_t>(shape.n_group), 0.0);
  for (int g = 0; g < shape.n_group; ++g) {
    std::vector<double> scores(head.keys.size(), -kInfinity);
    for (int i = slices.first; i < slices.last; ++i) {
      const auto entry = static_cast<std::size_t>(i);
      if (shape.spec.sliding_window > 0 && head.positions[entry] <= slices.position - shape.spec.sliding_window)
        continue;
      scores[entry] = score(shape, slices.q + g * shape.key_dim, head.keys[entry]);
    }
    head.add_output(softmax(shape, g, std::move(scores)).a, out.data() + static_cast<std::size_t>(g) * d);
  }
  return out;
}

WindowResult window_statistics(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                               int n_columns) {
  const Head head(shape, entries);
  WindowResult result;
  for (int g = 0; g < shape.n_group; ++g) {
    std::vector<std::vector<double>> a;  // [n_rows][n_entries]
    for (int r = 0; r < rows.n_rows; ++r) a.push_back(head.weights(rows, r, g).a);
    double entropy = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n_columns); ++i) {
      double sum = 0, high = 0, squares = 0;
      for (const std::vector<double>& row_weights : a) {
        const double x = row_weights[i];
        sum += x;
        high = std::max(high, x);
        if (x > 0) entropy -= x * std::log(x);
      }
      const double mean = sum / rows.n_rows;
      for (const std::vector<double>& row_weights : a) squares += (row_weights[i] - mean) * (row_weights[i] - mean);
      result.mean.push_back(mean);
      result.m2.push_back(squares);
      result.max.push_back(high);
      result.last.push_back(a.back()[i]);
    }
    result.entropy.push_back(entropy);
  }
  return result;
}

std::vector<double> column_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                                int n_columns) {
  const Head head(shape, entries);
  const auto n = static_cast<std::size_t>(n_columns);
  std::vector<double> sums(n * static_cast<std::size_t>(shape.n_group), 0.0);
  for (int g = 0; g < shape.n_group; ++g) {
    for (int r = 0; r < rows.n_rows; ++r) {
      const std::vector<double> a = head.weights(rows, r, g).a;
      for (std::size_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(g) * n + i] += a[i];
    }
  }
  return sums;
}

std::vector<double> value_l1_norms(const AttentionShape& shape, const HeadEntries& entries) {
  return norms(shape, entries, RowKind::kValue, Norm::kL1);
}

std::vector<double> value_l2_norms(const AttentionShape& shape, const HeadEntries& entries) {
  return norms(shape, entries, RowKind::kValue, Norm::kL2);
}

std::vector<double> key_l2_norms(const AttentionShape& shape, const HeadEntries& entries) {
  return norms(shape, entries, RowKind::kKey, Norm::kL2);
}

std::vector<double> projected_value_norms(const AttentionShape& shape, const HeadEntries& entries,
                                          std::span<const float> w_o, int n_embd) {
  std::vector<double> out;
  const auto width = static_cast<std::size_t>(n_embd);
  for (const std::vector<double>& v : all_rows(shape, entries, RowKind::kValue)) {
    double total = 0;
    for (std::size_t g = 0; g < static_cast<std::size_t>(shape.n_group); ++g) {
      for (std::size_t c = 0; c < width; ++c) {
        double x = 0;
        for (std::size_t i = 0; i < v.size(); ++i) x += v[i] * static_cast<double>(w_o[(g * v.size() + i) * width + c]);
        total += std::abs(x);
      }
    }
    out.push_back(total / shape.n_group);
  }
  return out;
}

MomentSums query_moments(const float* q, std::int64_t row_stride, int n_rows, int head_dim) {
  const auto d = static_cast<std::size_t>(head_dim);
  MomentSums moments{std::vector<double>(d), std::vector<double>(d * d)};
  for (int r = 0; r < n_rows; ++r) {
    const float* row = q + r * row_stride;
    for (std::size_t i = 0; i < d; ++i) {
      moments.sum[i] += static_cast<double>(row[i]);
      for (std::size_t j = 0; j < d; ++j) {
        moments.outer[i * d + j] += static_cast<double>(row[i]) * static_cast<double>(row[j]);
      }
    }
  }
  return moments;
}

std::vector<double> expected_scores(const AttentionShape& shape, const HeadEntries& entries, int n_columns,
                                    std::span<const double> mean, std::span<const double> covariance) {
  const auto d = static_cast<std::size_t>(shape.key_dim);
  const double scale = static_cast<double>(shape.spec.scale);
  const std::vector<std::vector<double>> keys = all_rows(shape, entries, RowKind::kKey);
  std::vector<double> scores;
  for (std::size_t g = 0; g < static_cast<std::size_t>(shape.n_group); ++g) {
    for (std::size_t n = 0; n < static_cast<std::size_t>(n_columns); ++n) {
      const std::vector<double>& k = keys[n];
      double dot = 0, square = 0;
      for (std::size_t i = 0; i < d; ++i) {
        dot += mean[g * d + i] * k[i];
        for (std::size_t j = 0; j < d; ++j) square += k[i] * covariance[(g * d + i) * d + j] * k[j];
      }
      scores.push_back(scale * dot + 0.5 * scale * scale * square);
    }
  }
  return scores;
}

}  // namespace winnow::kernels::reference
