// compaction-*.gguf and origin-*.gguf: the choice of one head's entries, their codes and refitted values, with keys
// relative to an origin if the file has one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "eviction/refit/value_fit.h"
#include "golden/checks.h"
#include "golden/golden_file.h"
#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/rows.h"
#include "kernels/simd/half.h"

namespace winnow::golden {
namespace {

constexpr double kCodeMargin = 1e-4;  // from a coordinate to the boundary between two codes, in scales

struct Sizes {
  int head_dim, n_group, n_tokens, n_ref, n_keep, bits, sinks, window, block;
  float scale, ridge;
  int n_rows() const { return n_ref * n_group; }
};

Sizes read_sizes(const GoldenFile& file) {
  const Sizes s{.head_dim = file.size("head_dim"),
                .n_group = file.size("n_group"),
                .n_tokens = file.size("n_tokens"),
                .n_ref = file.size("n_ref"),
                .n_keep = file.size("n_keep"),
                .bits = file.size("bits"),
                .sinks = file.size("sinks"),
                .window = file.size("window"),
                .block = file.size("block"),
                .scale = static_cast<float>(file.number("winnow.scale")),
                .ridge = static_cast<float>(file.number("winnow.ridge"))};
  const bool is_sane = s.head_dim >= 16 && s.head_dim <= 256 && s.head_dim % 16 == 0 && s.n_keep <= s.n_tokens &&
                       s.sinks + s.window <= s.n_keep && (s.bits == 4 || s.bits == 3);
  if (!is_sane) throw std::runtime_error("absurd sizes");
  return s;
}

std::vector<double> widened(std::span<const float> numbers) { return {numbers.begin(), numbers.end()}; }

// Attention of every row over all entries, in double precision: [n][d] outputs, [n] log-sum-exps, [N] sums of squared
// weights.
struct FullAttention {
  std::vector<double> out, log_sum_exp, squares;
};

FullAttention attend(std::span<const float> q, std::span<const float> k, std::span<const float> v, int d, float scale) {
  const std::size_t width = static_cast<std::size_t>(d), n_rows = q.size() / width, n = k.size() / width;
  FullAttention result{std::vector<double>(q.size()), std::vector<double>(n_rows), std::vector<double>(n)};
  std::vector<double> a(n);
  for (std::size_t r = 0; r < n_rows; ++r) {
    for (std::size_t j = 0; j < n; ++j) {
      double dot = 0;
      for (std::size_t c = 0; c < width; ++c) dot += double{q[r * width + c]} * double{k[j * width + c]};
      a[j] = dot * double{scale};
    }
    const double high = *std::max_element(a.begin(), a.end());
    double sum = 0;
    for (double& x : a) sum += x = std::exp(x - high);
    for (std::size_t j = 0; j < n; ++j) {
      a[j] /= sum;
      result.squares[j] += a[j] * a[j];
      for (std::size_t c = 0; c < width; ++c) result.out[r * width + c] += a[j] * double{v[j * width + c]};
    }
    result.log_sum_exp[r] = high + std::log(sum);
  }
  return result;
}

// Returns the mean of the keys after the sinks as the cache computes it: [d] float16 values.
std::vector<float> origin_of(const std::vector<float>& k, const Sizes& s) {
  const kernels::EntryRun run{
      .keys = std::as_bytes(std::span(k)).data(), .values = nullptr, .positions = {}, .n_entries = s.n_tokens};
  std::vector<std::byte> stored(row_bytes(EntryType::kF16, s.head_dim));
  kernels::store_mean_key({.runs = {&run, 1}, .n_entries = s.n_tokens}, s.head_dim, s.sinks, s.n_tokens, stored.data());
  std::vector<float> origin(static_cast<std::size_t>(s.head_dim));
  kernels::load_row(EntryType::kF16, stored.data(), origin.data(), s.head_dim);
  return origin;
}

// The kept rows in codes and decoded; the first `sinks` rows are rounded to float16, also relative to the origin. (A
// cache's rows come in float16, so it stores these as they are: relative to an origin they would be rounded twice.)
struct CodedRows {
  std::vector<std::uint8_t> codes;  // [t][d]
  std::vector<float> scales;        // [t][d / block]
  std::vector<float> decoded;       // [t][d]
};

// origin: [d], which is subtracted before coding; empty: none.
CodedRows code_rows(std::span<const float> rows, const Sizes& s, std::span<const float> origin = {}) {
  const EntryType type = s.bits == 4 ? EntryType::kR4 : EntryType::kR3;
  const auto width = static_cast<std::size_t>(s.head_dim), n_blocks = width / static_cast<std::size_t>(s.block);
  const std::size_t n = rows.size() / width;
  CodedRows result{std::vector<std::uint8_t>(rows.size()), std::vector<float>(n * n_blocks),
                   std::vector<float>(rows.size())};
  std::vector<std::byte> stored(row_bytes(type, s.head_dim));
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = rows.data() + i * width;
    std::vector<float> relative(row, row + width);
    for (std::size_t c = 0; c < origin.size(); ++c) relative[c] -= origin[c];
    kernels::store_coded_row(type, relative.data(), stored.data(), s.head_dim);
    kernels::unpack_codes(type, stored.data(), s.head_dim, std::span(result.codes).subspan(i * width, width),
                          std::span(result.scales).subspan(i * n_blocks, n_blocks));
    float* decoded = result.decoded.data() + i * width;
    if (static_cast<int>(i) >= s.sinks) {
      kernels::load_coded_row(type, stored.data(), decoded, s.head_dim);
      for (std::size_t c = 0; c < origin.size(); ++c) decoded[c] += origin[c];
      continue;
    }
    for (std::size_t c = 0; c < width; ++c) {
      decoded[c] = kernels::float_from_half(kernels::half_from_float(relative[c])) + (origin.empty() ? 0 : origin[c]);
    }
  }
  return result;
}

// Compares the codes of k or v (`name`). Rows with a coordinate too near to a boundary are skipped.
void check_codes(const GoldenFile& file, const Sizes& s, const std::string& name, const CodedRows& actual,
                 Tally& tally) {
  const std::string what = file.path() + " " + name;
  const std::vector<std::int32_t> codes = file.int32s(name + "_codes").data;
  const std::vector<float> scales = file.floats(name + "_scale").data, decoded = file.floats(name + "_hat").data,
                           margin = file.floats(name + "_margin").data;
  const auto width = static_cast<std::size_t>(s.head_dim), n_blocks = width / static_cast<std::size_t>(s.block);
  if (codes.size() != actual.codes.size() || scales.size() != actual.scales.size() ||
      decoded.size() != actual.decoded.size() || margin.size() * width != codes.size()) {
    throw std::runtime_error("tensors of " + name + " have the wrong size");
  }
  const double greatest = std::abs(double{
      *std::max_element(decoded.begin(), decoded.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })});
  for (std::size_t i = 0; i < margin.size(); ++i) {
    if (double{margin[i]} < kCodeMargin) {
      tally.skip_margin();
      continue;
    }
    const std::string row = what + " row " + std::to_string(i);
    if (static_cast<int>(i) >= s.sinks) {
      std::vector<double> a(actual.codes.begin() + std::ptrdiff_t(i * width),
                            actual.codes.begin() + std::ptrdiff_t((i + 1) * width));
      std::vector<double> e(codes.begin() + std::ptrdiff_t(i * width), codes.begin() + std::ptrdiff_t((i + 1) * width));
      tally.close(row + " codes", a, e, {0, 0, 0});
      tally.close(row + " scale", widened(std::span(actual.scales).subspan(i * n_blocks, n_blocks)),
                  widened(std::span(scales).subspan(i * n_blocks, n_blocks)), {1e-3, 0, 0});
    }
    tally.close(row + " decoded", widened(std::span(actual.decoded).subspan(i * width, width)),
                widened(std::span(decoded).subspan(i * width, width)), {0, 1e-3 * greatest, 0});
  }
}

std::vector<float> gathered(std::span<const float> rows, std::span<const std::int32_t> indices, int head_dim) {
  std::vector<float> out;
  for (const std::int32_t i : indices) {
    const auto row = rows.subspan(static_cast<std::size_t>(i) * static_cast<std::size_t>(head_dim),
                                  static_cast<std::size_t>(head_dim));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

// Returns the first sinks, the entries of the window, and those with the largest scores between them.
std::vector<std::int32_t> choose(const std::vector<double>& scores, const Sizes& s) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.n_tokens - s.sinks - s.window));
  std::iota(order.begin(), order.end(), s.sinks);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return scores[std::size_t(a)] > scores[std::size_t(b)]; });
  order.resize(static_cast<std::size_t>(s.n_keep - s.sinks - s.window));
  for (int i = 0; i < s.sinks; ++i) order.push_back(i);
  for (int i = s.n_tokens - s.window; i < s.n_tokens; ++i) order.push_back(i);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

void check_compaction(const std::string& path, Tally& tally) {
  const GoldenFile file(path);
  const Sizes s = read_sizes(file);
  const std::string what = path + " ";
  const std::int64_t d = s.head_dim;
  if (s.block != kernels::code_block(s.head_dim)) throw std::runtime_error("another block than the head size gives");

  std::vector<double> magnitudes = widened(kernels::code_magnitudes(s.bits));
  std::vector<double> codebook(magnitudes.rbegin(), magnitudes.rend());
  for (double& level : codebook) level = -level;
  codebook.insert(codebook.end(), magnitudes.begin(), magnitudes.end());
  tally.close(what + "codebook", codebook, file.doubles("codebook"), {1e-6, 0, 0});

  const std::vector<float> k = file.sized_floats("k", d * s.n_tokens), v = file.sized_floats("v", d * s.n_tokens),
                           q = file.sized_floats("q_ref", d * s.n_rows());
  FullAttention full = attend(q, k, v, s.head_dim, s.scale);
  tally.close(what + "log_sum_exp", full.log_sum_exp, file.doubles("log_sum_exp"), kScores);
  tally.close(what + "target", full.out, file.doubles("target"), kScores);
  for (double& x : full.squares) x = std::sqrt(x / s.n_rows());
  tally.close(what + "rms", full.squares, file.doubles("rms"), kScores);
  const std::vector<std::int32_t> kept = file.int32s("kept").data;
  tally.require(what + "kept", choose(full.squares, s) == kept, "other entries");

  const std::vector<float> kept_v = gathered(v, kept, s.head_dim);
  std::vector<float> origin;
  if (file.has("origin")) {
    origin = origin_of(k, s);
    tally.close(what + "origin", widened(origin), file.doubles("origin"), {1e-3, 1e-3, 0});
  }
  const CodedRows keys = code_rows(gathered(k, kept, s.head_dim), s, origin);
  check_codes(file, s, "k", keys, tally);

  // The fit starts from the file's decoded keys, and the codes from the file's fit, so that a difference counts once.
  const std::vector<float> k_hat = file.sized_floats("k_hat", d * s.n_keep),
                           target = file.sized_floats("target", d * s.n_rows()),
                           log_sum_exp = file.sized_floats("log_sum_exp", s.n_rows());
  std::vector<float> fitted(kept_v.size());
  const bool is_fitted =
      fit_values({.n_rows = s.n_rows(), .q = q.data(), .log_sum_exp = log_sum_exp.data(), .target = target.data()},
                 {.n_kept = s.n_keep, .keys = k_hat.data(), .values = kept_v.data()},
                 {.key_dim = s.head_dim, .value_dim = s.head_dim, .scale = s.scale, .lambda = s.ridge}, fitted.data());
  tally.require(what + "fit", is_fitted, "the values were left as they were");
  tally.close(what + "fitted", widened(fitted), file.doubles("fitted"), kFitted);
  check_codes(file, s, "v", code_rows(file.sized_floats("fitted", d * s.n_keep), s), tally);

  // Attention over our own codes is compared, too.
  const CodedRows values = code_rows(fitted, s);
  const std::int64_t n_held = 16 * s.n_group;
  const std::vector<float> held = file.sized_floats("q_held", d * n_held);
  tally.close(what + "held_out_full", attend(held, k, v, s.head_dim, s.scale).out, file.doubles("held_out_full"),
              kScores);
  tally.close(what + "held_out", attend(held, keys.decoded, values.decoded, s.head_dim, s.scale).out,
              file.doubles("held_out"), kFittedOutput);
}

}  // namespace winnow::golden
