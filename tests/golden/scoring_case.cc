#include "golden/scoring_case.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/entries/rows.h"
#include "winnow/error.h"

namespace winnow::golden {
namespace {

// Returns [head_dim, n_rows, n_heads] (ggml's order) as [n_rows][n_heads][head_dim].
std::vector<float> rows_first(const std::vector<float>& data, std::int64_t d, std::int64_t n_rows,
                              std::int64_t n_heads) {
  std::vector<float> result(data.size());
  for (std::int64_t h = 0; h < n_heads; ++h) {
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const float* row = data.data() + (h * n_rows + r) * d;
      std::copy(row, row + d, result.data() + (r * n_heads + h) * d);
    }
  }
  return result;
}

// Rounds numbers to those of another type.
void round_to(EntryType type, std::vector<float>& numbers) {
  const int n = static_cast<int>(numbers.size());
  std::vector<std::byte> stored(row_bytes(type, n));
  kernels::store_row(type, numbers.data(), stored.data(), n);
  kernels::load_row(type, stored.data(), numbers.data(), n);
}

// Appends the scaled products of a row with n keys.
void add_logits(const float* row, const float* keys, std::int64_t n, std::int64_t d, std::vector<double>& logits) {
  for (std::int64_t j = 0; j < n; ++j) {
    double dot = 0;
    for (std::int64_t c = 0; c < d; ++c) dot += static_cast<double>(row[c]) * static_cast<double>(keys[j * d + c]);
    logits.push_back(dot / std::sqrt(static_cast<double>(d)));
  }
}

double log_sum_exp(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

}  // namespace

const ParallelFor& serial() {
  static const ParallelFor instance = [](int n_items, const std::function<void(int)>& body) {
    for (int i = 0; i < n_items; ++i) body(i);
  };
  return instance;
}

HeadImportance head_importance(const GoldenFile& file, int n_kv_head) {
  const std::vector<double> weights = file.doubles("headkv.importance");
  HeadImportance importance;
  for (auto layer = weights.begin(); layer != weights.end(); layer += n_kv_head) {
    importance.weight.emplace_back(layer, layer + n_kv_head);
  }
  return importance;
}

EvictionOptions parse_option_list(const std::string& list) {
  EvictionOptions options = EvictionOptions::parse("snapkv");
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(';', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) throw std::runtime_error("an option without a value: " + item);
    options.set(item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
  return options;
}

ScoringCase::ScoringCase(const GoldenFile& file, CaseNumbers numbers)
    : n_layer(file.size("n_layer", 1)),
      n_head(file.size("n_head", 1)),
      n_kv_head(file.size("n_head_kv", 1)),
      head_dim(file.size("head_dim", 1)),
      n_embd(file.size("n_embd", 1)),
      n_tokens(file.size("n_tokens", 1)) {
  if (n_head % n_kv_head != 0) throw std::runtime_error("n_head is not a multiple of n_head_kv");
  const std::int64_t d = head_dim, n = n_tokens;
  interleaved_ = file.text("winnow.rope.kind") == "norm";
  const std::int64_t n_dims = file.integer("winnow.rope.n_dims");
  if (n_dims < 0 || n_dims > d) throw std::runtime_error("absurd rope.n_dims");
  const double base = file.number("winnow.rope.base");
  for (std::int64_t i = 0; i < n_dims / 2; ++i) {
    frequency_.push_back(
        static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(n_dims))));
  }
  for (std::int32_t i = 0; i < n_tokens; ++i) positions_.push_back(i);

  for (int l = 0; l < n_layer; ++l) {
    const std::string prefix = std::string("l").append(std::to_string(l)).append(".");
    CaseLayer layer;
    layer.k = file.sized_floats(prefix + "k", d * n * n_kv_head);
    layer.v = file.sized_floats(prefix + "v", d * n * n_kv_head);
    layer.q_pre = file.sized_floats(prefix + "q_pre", d * n * n_head);
    std::vector<float> q = file.sized_floats(prefix + "q", d * n * n_head);
    std::vector<float> w_o = file.sized_floats(prefix + "w_o", d * n_head * n_embd);
    if (numbers == CaseNumbers::kOfDevices) {
      round_to(EntryType::kF16, layer.k);
      round_to(EntryType::kF16, layer.v);
      round_to(EntryType::kF16, q);
      round_to(EntryType::kBF16, w_o);
    }
    layer.q = rows_first(q, d, n, n_head);
    std::vector<float> pass_k;  // [n_kv_head][n_pass][head_dim]
    if (file.has(prefix + "pass_q")) {
      const Tensor<float> pass_q = file.floats(prefix + "pass_q");
      layer.n_pass = static_cast<int>(pass_q.dim(1));
      layer.pass_q =
          rows_first(file.sized_floats(prefix + "pass_q", d * layer.n_pass * n_head), d, layer.n_pass, n_head);
      if (numbers == CaseNumbers::kOfDevices) round_to(EntryType::kF16, layer.pass_q);
      pass_k = file.sized_floats(prefix + "pass_k", d * layer.n_pass * n_kv_head);
    }
    layer.pass_log_sum_exp.resize(static_cast<std::size_t>(layer.n_pass) * n_head);
    layer.w_o.resize(w_o.size());
    layer.log_sum_exp.resize(n * n_head);
    for (std::int64_t h = 0; h < n_head; ++h) {
      const float* keys = layer.k.data() + h / (n_head / n_kv_head) * n * d;
      for (std::int64_t i = 0; i < n; ++i) {
        const float* row = q.data() + (h * n + i) * d;
        std::vector<double> logits;
        add_logits(row, keys, i + 1, d, logits);
        layer.log_sum_exp[i * n_head + h] = static_cast<float>(log_sum_exp(logits));
      }
      for (std::int64_t i = 0; i < layer.n_pass; ++i) {
        const float* row = layer.pass_q.data() + (i * n_head + h) * d;
        std::vector<double> logits;
        add_logits(row, keys, n, d, logits);
        add_logits(row, pass_k.data() + h / (n_head / n_kv_head) * layer.n_pass * d, i + 1, d, logits);
        layer.pass_log_sum_exp[i * n_head + h] = static_cast<float>(log_sum_exp(logits));
      }
      for (std::int64_t c = 0; c < d; ++c) {
        for (std::int64_t j = 0; j < n_embd; ++j) {
          layer.w_o[(h * d + c) * n_embd + j] = w_o[j * n_head * d + h * d + c];
        }
      }
    }
    layers.push_back(std::move(layer));
  }
}

void ScoringCase::with_view(int l, const EvidenceNeeds& needs,
                            const std::function<void(const LayerView&)>& body) const {
  const CaseLayer& layer = layers[l];
  const std::int64_t d = head_dim, n = n_tokens;
  std::vector<kernels::EntryRun> runs;
  for (int h = 0; h < n_kv_head; ++h) {
    runs.push_back({.keys = std::as_bytes(std::span(layer.k)).data() + h * n * d * 4,
                    .values = std::as_bytes(std::span(layer.v)).data() + h * n * d * 4,
                    .positions = positions_.data(),
                    .n_entries = n_tokens});
  }
  std::vector<kernels::HeadEntries> heads;
  for (const kernels::EntryRun& run : runs) heads.push_back({.runs = {&run, 1}, .n_entries = n_tokens});

  std::vector<double> mean, covariance;
  if (needs.query_moments) {
    mean.resize(n_head * d);
    covariance.resize(n_head * d * d);
    const std::int64_t first = std::min<std::int64_t>(needs.moments_skip, n - 1);
    const double scale = 1.0 / static_cast<double>(n - first);
    for (std::int64_t h = 0; h < n_head; ++h) {
      const auto q = [&](std::int64_t i, std::int64_t c) {
        return static_cast<double>(layer.q_pre[(h * n + i) * d + c]);
      };
      double* mu = mean.data() + h * d;
      for (std::int64_t i = first; i < n; ++i) {
        for (std::int64_t c = 0; c < d; ++c) mu[c] += q(i, c) * scale;
      }
      for (std::int64_t i = first; i < n; ++i) {
        for (std::int64_t a = 0; a < d; ++a) {
          for (std::int64_t b = 0; b < d; ++b) {
            covariance[(h * d + a) * d + b] += (q(i, a) - mu[a]) * (q(i, b) - mu[b]) * scale;
          }
        }
      }
    }
  }
  const int n_rows = std::min(needs.window_rows, static_cast<int>(n_tokens));
  LayerView view{.layer = l,
                 .n_head = n_head,
                 .n_kv_head = n_kv_head,
                 .shape = {.n_group = n_head / n_kv_head,
                           .key_dim = head_dim,
                           .value_dim = head_dim,
                           .key_type = EntryType::kF32,
                           .value_type = EntryType::kF32,
                           .spec = {.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))}},
                 .n_tokens = n_tokens,
                 .heads = heads};
  view.window_q = n_rows > 0 ? layer.q.data() + (n - n_rows) * n_head * d : nullptr;
  view.n_window_rows = n_rows;
  if (needs.log_sum_exp || needs.all_queries) {
    view.n_query_rows = n_tokens;
    view.log_sum_exp = layer.log_sum_exp.data();
    view.all_q = layer.q.data();
    view.has_all_queries = needs.all_queries;
  }
  if (needs.query_moments) {
    view.query_mean = mean.data();
    view.query_covariance = covariance.data();
    view.rotation = {
        .interleaved = interleaved_, .n_dims = static_cast<int>(2 * frequency_.size()), .frequency = frequency_.data()};
  }
  const ReconstructionPass pass{
      .n_rows = layer.n_pass, .q = layer.pass_q.data(), .log_sum_exp = layer.pass_log_sum_exp.data()};
  if (layer.n_pass > 0) view.passes = {&pass, 1};
  view.n_embd = n_embd;
  view.has_output_projection = needs.output_projection;
  if (needs.output_projection) view.w_o = layer.w_o.data();
  body(view);
}

}  // namespace winnow::golden
