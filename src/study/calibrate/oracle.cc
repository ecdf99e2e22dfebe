#include "study/calibrate/oracle.h"

#include <algorithm>
#include <utility>

#include "study/calibrate/marginal_utility.h"
#include "winnow/layer_evidence.h"

namespace winnow {
namespace {

// Window statistics have the tokens before the window as columns; for the context's tokens the window is all that
// follows.
LayerEvidence context_columns(const LayerView& view, std::int32_t n_context, unsigned columns,
                              const ParallelFor& parallel_for) {
  EvictionOptions options;
  options.window = view.n_tokens - n_context;
  return {view, options, columns, parallel_for};
}

}  // namespace

std::vector<std::vector<double>> oracle_importance(const LayerView& view, std::int32_t n_context, int n_rows,
                                                   const ParallelFor& parallel_for) {
  const auto n = static_cast<std::size_t>(n_context);
  std::vector<std::vector<float>> norms(static_cast<std::size_t>(view.n_head));
  parallel_for(view.n_head, [&](int h) {
    norms[static_cast<std::size_t>(h)] = projected_l2_norms(view, h);
    norms[static_cast<std::size_t>(h)].resize(n);
  });
  LayerEvidence evidence = context_columns(view, n_context, kWindowMax, parallel_for);
  const WindowStatistics& statistics = evidence.window(n_rows);
  OracleImportance oracle(view.n_kv_head, view.shape.n_group, std::move(norms));
  for (int h = 0; h < view.n_head; ++h) {
    const int kv_head = h / view.shape.n_group, of_group = h % view.shape.n_group;
    const std::vector<float>& largest = statistics.max[static_cast<std::size_t>(kv_head)];
    oracle.add_step(h, std::span(largest).subspan(static_cast<std::size_t>(of_group) * n, n));
  }
  return oracle.importance();
}

std::vector<std::vector<double>> future_attention(const LayerView& view, std::int32_t n_context, int n_rows,
                                                  const ParallelFor& parallel_for) {
  const auto n = static_cast<std::size_t>(n_context);
  LayerEvidence evidence = context_columns(view, n_context, kWindowMean, parallel_for);
  std::vector<std::vector<double>> attention;
  for (const std::vector<float>& group : evidence.window(n_rows).mean) {
    std::vector<double>& head = attention.emplace_back(n, 0.0);
    for (std::size_t i = 0; i < group.size(); ++i) head[i % n] += static_cast<double>(group[i]) / view.shape.n_group;
  }
  return attention;
}

std::vector<Token> decode_greedily(Session& session, int n) {
  const Model& model = *session.model();
  std::vector<Token> tokens;
  while (static_cast<int>(tokens.size()) < n) {
    const std::span<const float> logits = session.logits();
    tokens.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    session.decode(tokens.back());
    if (model.is_end_of_generation(tokens.back())) break;
  }
  return tokens;
}

}  // namespace winnow
