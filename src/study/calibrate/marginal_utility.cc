#include "study/calibrate/marginal_utility.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "eviction/evidence/stored_rows.h"
#include "winnow/ranking.h"

namespace winnow {

OracleImportance::OracleImportance(int n_kv_head, int n_group, std::vector<std::vector<float>> value_norms)
    : n_kv_head_(n_kv_head), n_group_(n_group), value_norms_(std::move(value_norms)) {
  for (const std::vector<float>& head : value_norms_) attention_.emplace_back(head.size(), 0.0F);
}

void OracleImportance::add_step(int head, std::span<const float> attention) {
  std::vector<float>& largest = attention_[head];
  for (std::size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], attention[i]);
}

std::vector<std::vector<double>> OracleImportance::importance() const {
  std::vector<std::vector<double>> result;
  for (int h = 0; h < n_kv_head_; ++h) {
    std::vector<double> importance(attention_[std::size_t(h) * n_group_].size(), 0.0);
    for (int g = 0; g < n_group_; ++g) {
      const std::size_t head = std::size_t(h) * n_group_ + g;
      for (std::size_t i = 0; i < importance.size(); ++i) {
        importance[i] = std::max(importance[i],
                                 static_cast<double>(attention_[head][i]) * static_cast<double>(value_norms_[head][i]));
      }
    }
    result.push_back(std::move(importance));
  }
  return result;
}

std::vector<double> projection_gram(const LayerView& view, int head) {
  const int d = view.shape.value_dim;
  const float* w_o = view.w_o + std::ptrdiff_t{head} * d * view.n_embd;
  std::vector<double> gram(std::size_t(d) * d);
  for (int a = 0; a < d; ++a) {
    for (int b = 0; b <= a; ++b) {
      double sum = 0;
      for (int j = 0; j < view.n_embd; ++j) {
        sum += static_cast<double>(w_o[std::ptrdiff_t{a} * view.n_embd + j]) *
               static_cast<double>(w_o[std::ptrdiff_t{b} * view.n_embd + j]);
      }
      gram[std::size_t(a) * d + b] = gram[std::size_t(b) * d + a] = sum;
    }
  }
  return gram;
}

double projected_square(std::span<const double> gram, std::span<const float> value) {
  const std::size_t d = value.size();
  double square = 0;
  for (std::size_t a = 0; a < d; ++a) {
    double product = 0;
    for (std::size_t b = 0; b < d; ++b) product += gram[a * d + b] * static_cast<double>(value[b]);
    square += product * static_cast<double>(value[a]);
  }
  return std::max(square, 0.0);
}

std::vector<float> projected_l2_norms(const LayerView& view, int head) {
  const kernels::HeadEntries& entries = view.heads[head / view.shape.n_group];
  const std::vector<double> gram = projection_gram(view, head);
  std::vector<float> norms;
  norms.reserve(entries.n_entries);
  for_each_row(view.shape, entries, kernels::RowKind::kValue, entries.n_entries, [&](std::int32_t, const float* value) {
    norms.push_back(static_cast<float>(std::sqrt(projected_square(gram, {value, std::size_t(view.shape.value_dim)}))));
  });
  return norms;
}

std::vector<double> loss_curve(std::span<const double> oracle, std::span<const float> scores) {
  const std::vector<std::int32_t> order = order_by_score({scores.begin(), scores.end()});
  std::vector<double> loss(oracle.size() + 1, 0.0);
  // Summed from the end, so that the last value is exactly zero and the curve exactly non-increasing.
  for (std::size_t i = oracle.size(); i-- > 0;) loss[i] = loss[i + 1] + oracle[order[i]];
  return loss;
}

std::vector<double> convex_surrogate(std::span<const double> loss) {
  struct Block {
    double gain;  // sum
    std::size_t size;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 1; i < loss.size(); ++i) {
    Block block{loss[i - 1] - loss[i], 1};
    while (!blocks.empty() && blocks.back().gain * static_cast<double>(block.size) <
                                  block.gain * static_cast<double>(blocks.back().size)) {
      block.gain += blocks.back().gain;
      block.size += blocks.back().size;
      blocks.pop_back();
    }
    blocks.push_back(block);
  }
  std::vector<double> surrogate(loss.begin(), loss.end());
  std::size_t i = surrogate.size() - 1;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const double end = surrogate[i];
    for (std::size_t k = 1; k <= block->size; ++k) {
      surrogate[--i] = end + block->gain * static_cast<double>(k) / static_cast<double>(block->size);
    }
  }
  return surrogate;
}

std::vector<std::int32_t> greedy_budgets(const Curves& convex, std::int64_t total) {
  return greedy_path(convex, {&total, 1}).front();
}

std::vector<std::vector<std::int32_t>> greedy_path(const Curves& convex, std::span<const std::int64_t> totals) {
  struct Gain {
    double value;
    std::size_t head;
    bool operator<(const Gain& other) const {  // the largest first, then the lower head
      return value != other.value ? value < other.value : head > other.head;
    }
  };
  std::priority_queue<Gain> gains;
  std::vector<std::int32_t> budgets(convex.size(), 0);
  const auto offer = [&](std::size_t head) {
    const std::size_t next = budgets[head] + 1;
    if (next < convex[head].size()) gains.push({convex[head][next - 1] - convex[head][next], head});
  };
  for (std::size_t head = 0; head < convex.size(); ++head) offer(head);
  std::vector<std::vector<std::int32_t>> path;
  std::int64_t given = 0;
  for (const std::int64_t total : totals) {
    for (; given < total && !gains.empty(); ++given) {
      const std::size_t head = gains.top().head;
      gains.pop();
      ++budgets[head];
      offer(head);
    }
    path.push_back(budgets);
  }
  return path;
}

double least_loss(const Curves& curves, std::int64_t total) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> best = {0.0};  // least loss of the heads so far, by units given
  best.resize(total + 1, kInfinity);
  for (const std::vector<double>& curve : curves) {
    std::vector<double> next(total + 1, kInfinity);
    for (std::int64_t given = 0; given <= total; ++given) {
      const std::int64_t most = std::min<std::int64_t>(given, std::ssize(curve) - 1);
      for (std::int64_t b = 0; b <= most; ++b) next[given] = std::min(next[given], best[given - b] + curve[b]);
    }
    best = std::move(next);
  }
  return best[total];
}

double loss_at(const Curves& curves, std::span<const std::int32_t> budgets) {
  double loss = 0;
  for (std::size_t head = 0; head < curves.size(); ++head) loss += curves[head][budgets[head]];
  return loss;
}

}  // namespace winnow
