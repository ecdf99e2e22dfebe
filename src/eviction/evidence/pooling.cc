#include "eviction/evidence/pooling.h"

#include <algorithm>

namespace winnow {

std::vector<Option> pooling_options() {
  constexpr int kMaxKernel = 1023;  // the cost grows with the width
  Option kernel = integer_option("kernel", 1, kMaxKernel, 7, "width of the pooling");
  kernel.values = "odd " + kernel.values;
  kernel.read = [read = kernel.read](std::string_view text) {
    std::optional<std::string> number = read(text);
    if (number && (number->back() - '0') % 2 == 0) number.reset();
    return number;
  };
  return {choice_option("pool", {"none", "max", "avg"}, "max", "pooling along the tokens"), kernel,
          choice_option("order", {"pool-then-group", "group-then-pool"}, "pool-then-group", "which comes first"),
          choice_option("group", {"mean", "max"}, "mean", "reduction over the query heads of a KV head")};
}

GroupReduction group_reduction(const EvictionOptions& options) {
  return options.text_of("group") == "max" ? GroupReduction::kMax : GroupReduction::kMean;
}

void pool_row(std::span<const float> in, ScorePooling pool, int kernel, std::span<float> out) {
  const auto n = static_cast<std::ptrdiff_t>(in.size());
  const std::ptrdiff_t half = kernel / 2;
  if (pool == ScorePooling::kNone) {
    std::copy(in.begin(), in.end(), out.begin());
    return;
  }
  // A token's neighbours are taken in ascending order, for many tokens at a time, so that the compiler vectorises the
  // loops. The sum of each token is computed anew, in double: a running sum would break exact ties.
  const float* x = in.data();
  constexpr std::ptrdiff_t kTokens = 256;
  double sums[kTokens];
  float values[kTokens];
  for (std::ptrdiff_t begin = 0; begin < n; begin += kTokens) {
    const std::ptrdiff_t end = std::min(begin + kTokens, n);
    const auto first_of = [&](std::ptrdiff_t i) { return std::max<std::ptrdiff_t>(i - half, 0); };
    for (std::ptrdiff_t i = begin; i < end; ++i) values[i - begin] = x[first_of(i)];
    if (pool == ScorePooling::kAverage) std::copy(values, values + (end - begin), sums);
    for (std::ptrdiff_t shift = 1; shift < kernel; ++shift) {
      // Takes neighbour number `shift`, counted from the first that exists, of the tokens that have it. Tokens near the
      // begin have fewer neighbours before them.
      const std::ptrdiff_t inner = std::clamp(half, begin, end);
      const auto take = [&](std::ptrdiff_t i, std::ptrdiff_t neighbour) {
        if (pool == ScorePooling::kMax) {
          float& value = values[i - begin];
          value = value < x[neighbour] ? x[neighbour] : value;
        } else {
          sums[i - begin] += static_cast<double>(x[neighbour]);
        }
      };
      for (std::ptrdiff_t i = begin; i < inner; ++i) {
        if (shift <= i + half && shift < n) take(i, shift);
      }
      const std::ptrdiff_t stop = std::min(end, n - shift + half);
      if (pool == ScorePooling::kMax) {
        for (std::ptrdiff_t i = inner; i < stop; ++i) {
          const float neighbour = x[i - half + shift];
          values[i - begin] = values[i - begin] < neighbour ? neighbour : values[i - begin];
        }
      } else {
        for (std::ptrdiff_t i = inner; i < stop; ++i) sums[i - begin] += static_cast<double>(x[i - half + shift]);
      }
    }
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      out[static_cast<std::size_t>(i)] =
          pool == ScorePooling::kMax ? values[i - begin] : static_cast<float>(sums[i - begin] / kernel);
    }
  }
}

std::vector<float> group_only(std::span<const float> columns, int n_group, GroupReduction reduction) {
  const std::size_t n = columns.size() / static_cast<std::size_t>(n_group);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    float max = columns[i];
    for (int g = 0; g < n_group; ++g) {
      const float value = columns[static_cast<std::size_t>(g) * n + i];
      sum += static_cast<double>(value);
      // A NaN must not vanish, since the caller reports it.
      if (!(value <= max)) max = value;
    }
    out[i] = reduction == GroupReduction::kMean ? static_cast<float>(sum / n_group) : max;
  }
  return out;
}

std::vector<float> pool_then_group(std::span<const float> columns, int n_group, ScorePooling pool, int kernel,
                                   GroupReduction reduction) {
  const std::size_t n = columns.size() / static_cast<std::size_t>(n_group);
  std::vector<float> pooled(columns.size());
  for (std::size_t g = 0; g < static_cast<std::size_t>(n_group); ++g) {
    pool_row(columns.subspan(g * n, n), pool, kernel, std::span(pooled).subspan(g * n, n));
  }
  return group_only(pooled, n_group, reduction);
}

std::vector<float> pool_and_group(std::span<const float> columns, int n_group, const EvictionOptions& options,
                                  GroupReduction reduction) {
  const std::string& name = options.text_of("pool");
  const ScorePooling pool = name == "none"  ? ScorePooling::kNone
                            : name == "avg" ? ScorePooling::kAverage
                                            : ScorePooling::kMax;
  const auto kernel = static_cast<int>(options.integer("kernel"));
  if (options.text_of("order") == "group-then-pool") {
    const std::vector<float> grouped = group_only(columns, n_group, reduction);
    std::vector<float> out(grouped.size());
    pool_row(grouped, pool, kernel, out);
    return out;
  }
  return pool_then_group(columns, n_group, pool, kernel, reduction);
}

}  // namespace winnow
