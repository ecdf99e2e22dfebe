// Models whose layers differ: heads, KV heads, sizes of keys and values, feed-forward widths, and sliding windows next
// to full attention. Results are compared with a forward pass in double precision.
#include <cmath>
#include <limits>

#include "engine/engine_test_support.h"
#include "gguf/gguf_file.h"

namespace winnow::test {
namespace {

constexpr int kWindow = 40;
constexpr int kVocab = 300;

TinyModelOptions mixed_options() {
  return {.n_vocab = kVocab,
          .sliding_window = kWindow,
          .layers = {{.n_head = 4, .n_kv_head = 2, .key_dim = 32, .value_dim = 32, .n_ff = 96, .slides = true},
                     {.n_head = 6, .n_kv_head = 3, .key_dim = 16, .value_dim = 48, .n_ff = 64, .slides = false},
                     {.n_head = 4, .n_kv_head = 4, .key_dim = 64, .value_dim = 16, .n_ff = 128, .slides = true},
                     {.n_head = 2, .n_kv_head = 1, .key_dim = 48, .value_dim = 32, .n_ff = 32, .slides = false},
                     {.n_head = 3, .n_kv_head = 1, .key_dim = 32, .value_dim = 64, .n_ff = 96, .slides = true}}};
}

using Row = std::vector<double>;

Row tensor_of(const GgufFile& file, const std::string& name) {
  const ggml_tensor* tensor = file.find_tensor(name);
  const auto* data = static_cast<const float*>(tensor->data);
  return {data, data + tensor->ne[0] * tensor->ne[1]};
}

// Returns y = W x, with W [n_out rows][n_in].
Row multiply(const Row& weights, const Row& x) {
  Row y(weights.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += weights[r * x.size() + c] * x[c];
  }
  return y;
}

Row normed(const Row& x, const Row& weight) {
  double square = 0;
  for (const double value : x) square += value * value;
  const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + 1e-5);
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}

void rotate(Row& heads, std::size_t key_dim, int n_rot, std::size_t position) {
  for (std::size_t first = 0; first < heads.size(); first += key_dim) {
    for (int i = 0; i < n_rot / 2; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * i / n_rot);
      double& a = heads[first + 2 * static_cast<std::size_t>(i)];
      double& b = heads[first + 2 * static_cast<std::size_t>(i) + 1];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

// Returns the logits after every token.
std::vector<std::vector<float>> naive_logits(const std::string& path, const TinyModelOptions& options,
                                             std::span<const Token> tokens) {
  const GgufFile file(path, true);
  const auto n_embd = static_cast<std::size_t>(options.n_embd);
  const Row embeddings = tensor_of(file, "token_embd.weight");
  std::vector<Row> x;
  for (const Token token : tokens) {
    const auto first = embeddings.begin() + static_cast<std::ptrdiff_t>(token) * options.n_embd;
    x.emplace_back(first, first + options.n_embd);
  }
  int n_rot = std::numeric_limits<int>::max();
  for (const TinyLayer& layer : options.layers) n_rot = std::min(n_rot, layer.key_dim);
  for (std::size_t l = 0; l < options.layers.size(); ++l) {
    const TinyLayer& layer = options.layers[l];
    const std::string blk = "blk." + std::to_string(l) + ".";
    const auto key_dim = static_cast<std::size_t>(layer.key_dim);
    const auto value_dim = static_cast<std::size_t>(layer.value_dim);
    const Row wq = tensor_of(file, blk + "attn_q.weight"), wk = tensor_of(file, blk + "attn_k.weight");
    const Row wv = tensor_of(file, blk + "attn_v.weight"), wo = tensor_of(file, blk + "attn_output.weight");
    const Row attn_norm = tensor_of(file, blk + "attn_norm.weight"),
              ffn_norm = tensor_of(file, blk + "ffn_norm.weight");
    const Row gate = tensor_of(file, blk + "ffn_gate.weight"), up = tensor_of(file, blk + "ffn_up.weight");
    const Row down = tensor_of(file, blk + "ffn_down.weight");
    const Row sinks = options.has_sinks ? tensor_of(file, blk + "attn_sinks.weight") : Row{};
    std::vector<Row> keys, values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row h = normed(x[t], attn_norm);
      Row q = multiply(wq, h);
      keys.push_back(multiply(wk, h));
      values.push_back(multiply(wv, h));
      rotate(q, key_dim, n_rot, t);
      rotate(keys.back(), key_dim, n_rot, t);
      Row attended;
      for (std::size_t head = 0; head < static_cast<std::size_t>(layer.n_head); ++head) {
        const std::size_t kv = head / static_cast<std::size_t>(layer.n_head / layer.n_kv_head);
        const std::size_t first = layer.slides && t + 1 > kWindow ? t + 1 - kWindow : 0;
        Row weights;
        double high = sinks.empty() ? -std::numeric_limits<double>::infinity() : sinks[head];
        for (std::size_t i = first; i <= t; ++i) {
          double score = 0;
          for (std::size_t c = 0; c < key_dim; ++c) score += q[head * key_dim + c] * keys[i][kv * key_dim + c];
          score /= std::sqrt(static_cast<double>(key_dim));
          weights.push_back(score);
          high = std::max(high, score);
        }
        double sum = sinks.empty() ? 0 : std::exp(sinks[head] - high);
        for (double& weight : weights) sum += weight = std::exp(weight - high);
        Row out(value_dim);
        for (std::size_t i = first; i <= t; ++i) {
          for (std::size_t c = 0; c < value_dim; ++c) {
            out[c] += weights[i - first] / sum * values[i][kv * value_dim + c];
          }
        }
        attended.insert(attended.end(), out.begin(), out.end());
      }
      const Row y = multiply(wo, attended);
      for (std::size_t c = 0; c < n_embd; ++c) x[t][c] += y[c];
      const Row f = normed(x[t], ffn_norm);
      Row inner = multiply(gate, f);
      const Row widened = multiply(up, f);
      for (std::size_t c = 0; c < inner.size(); ++c) inner[c] *= widened[c] / (1 + std::exp(-inner[c]));
      const Row z = multiply(down, inner);
      for (std::size_t c = 0; c < n_embd; ++c) x[t][c] += z[c];
    }
  }
  const Row output_norm = tensor_of(file, "output_norm.weight"), output = tensor_of(file, "output.weight");
  std::vector<std::vector<float>> logits;
  for (const Row& row : x) {
    const Row y = multiply(output, normed(row, output_norm));
    logits.emplace_back(y.begin(), y.end());
  }
  return logits;
}

struct MixedModel {
  explicit MixedModel(const TinyModelOptions& the_options = mixed_options(), int n_batch = 32)
      : options(the_options),
        file(options),
        engine(Engine::create(Model::load(file.path()), {.n_threads = 2, .n_batch = n_batch})) {}
  TinyModelOptions options;
  TinyModel file;
  std::shared_ptr<Engine> engine;
};

std::vector<std::vector<float>> prefill_all(Session& session, std::span<const Token> tokens) {
  std::vector<std::vector<float>> logits;
  PrefillOptions callbacks;
  callbacks.on_logits = [&](std::int32_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  session.prefill(tokens, callbacks);
  return logits;
}

double largest_difference(std::span<const std::vector<float>> a, std::span<const std::vector<float>> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, max_difference(a[i], b[i]));
  return largest;
}

// Returns the number of entries in the layers that methods cut; expects sliding windows to hold all tokens they see.
std::int64_t cut_entries(const Session& session, const TinyModelOptions& options) {
  const SessionStatistics statistics = session.statistics();
  std::int64_t n = 0;
  for (std::size_t l = 0; l < options.layers.size(); ++l) {
    for (const std::int32_t head : statistics.kept[l]) {
      if (options.layers[l].slides) {
        EXPECT_EQ(head, std::min(session.n_tokens(), kWindow)) << "layer " << l;
      } else {
        n += head;
      }
    }
  }
  return n;
}

TEST(MixedLayers, PrefillAndDecodeMatchTheForwardPassInDouble) {
  const std::vector<Token> tokens = random_tokens(130, kVocab, 3);
  for (const bool has_sinks : {false, true}) {
    TinyModelOptions options = mixed_options();
    options.has_sinks = has_sinks;
    const MixedModel model(options);
    const auto expected = naive_logits(model.file.path(), options, tokens);
    Session whole = model.engine->open(full_options());
    EXPECT_LT(largest_difference(prefill_all(whole, tokens), expected), 1e-3) << has_sinks;
    Session decoded = model.engine->open(full_options());
    EXPECT_LT(largest_difference(decode_all(decoded, tokens), expected), 1e-3) << has_sinks;
    // The tokens are also fed in turns of several sizes.
    Session turns = model.engine->open(full_options());
    std::vector<std::vector<float>> logits = prefill_all(turns, std::span(tokens).first(50));
    for (std::size_t at = 50; at < tokens.size(); at += 16) {
      PrefillOptions callbacks;
      callbacks.on_logits = [&](std::int32_t, std::span<const float> row) {
        logits.emplace_back(row.begin(), row.end());
      };
      turns.append(std::span(tokens).subspan(at, std::min<std::size_t>(16, tokens.size() - at)), callbacks);
    }
    EXPECT_LT(largest_difference(logits, expected), 1e-3) << has_sinks;
  }
}

TEST(MixedLayers, EveryPresetKeepsItsBudgetInTheLayersThatItCuts) {
  const MixedModel model;
  const std::vector<Token> tokens = random_tokens(200, kVocab, 4);
  constexpr std::int64_t kCutHeads = 3 + 1;
  for (const std::string& method : session_methods()) {
    for (const char* budget : {"48", "40%"}) {
      SCOPED_TRACE(method + " " + budget);
      Session session = model.engine->open(evicting_options(method, budget));
      session.prefill(tokens);
      const std::int64_t total = std::string(budget) == "48" ? 48 * kCutHeads : 80 * kCutHeads;
      EXPECT_EQ(cut_entries(session, model.options), total);
      for (const float logit : session.logits()) ASSERT_TRUE(std::isfinite(logit));
      for (const Token token : random_tokens(50, kVocab, 5)) session.decode(token);
      EXPECT_EQ(cut_entries(session, model.options), total + 50 * kCutHeads);
    }
  }
}

TEST(MixedLayers, ChunksAndCutsWhileDecodingKeepTheBudget) {
  const MixedModel model;
  SessionOptions options = evicting_options("snapkv:window=8", "30");
  options.prefill_chunk = 64;
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 8;
  Session session = model.engine->open(options);
  session.prefill(random_tokens(200, kVocab, 4));
  EXPECT_EQ(cut_entries(session, model.options), 30 * 4);
  for (const Token token : random_tokens(64, kVocab, 5)) session.decode(token);
  EXPECT_EQ(cut_entries(session, model.options), 30 * 4);
}

TEST(MixedLayers, WindowsFreeWhatTheyHaveLeft) {
  const MixedModel model;
  Session session = model.engine->open(full_options());
  session.prefill(random_tokens(300, kVocab, 6));
  const CacheShape shape = session.impl().cache.shape();
  // A window of 40 entries lies on 2 pages, or on 3 where it begins late on one.
  const auto most_bytes = [&](std::size_t n_tokens) {
    std::size_t bytes = 0;
    for (int l = 0; l < shape.n_layer(); ++l) {
      const std::size_t n_pages = shape.layer(l).sliding_window > 0 ? 3 : (n_tokens + kPageEntries - 1) / kPageEntries;
      bytes += static_cast<std::size_t>(shape.layer(l).n_kv_head) * n_pages * shape.page_bytes(l);
    }
    return bytes;
  };
  EXPECT_LE(session.statistics().bytes_in_pages, most_bytes(300));
  for (const Token token : random_tokens(100, kVocab, 7)) {
    session.decode(token);
    ASSERT_LE(session.statistics().bytes_in_pages, most_bytes(static_cast<std::size_t>(session.n_tokens())));
  }
  EXPECT_EQ(model.engine->memory().kv_bytes_in_use, session.statistics().bytes_in_pages);
  EXPECT_EQ(session.statistics().entries_kept, session.statistics().entries_full);
  EXPECT_EQ(session.statistics().bytes_kept, shape.full_bytes(session.n_tokens()));
}

TEST(MixedLayers, ForksAndFilesContinueBitForBit) {
  const MixedModel model;
  const TemporaryDirectory directory;
  const std::vector<Token> later = random_tokens(70, kVocab, 9);
  for (const bool evicts : {false, true}) {
    Session session = model.engine->open(evicts ? evicting_options("h2o", "64") : full_options());
    session.prefill(random_tokens(110, kVocab, 8));
    for (const Token token : random_tokens(9, kVocab, 1)) session.decode(token);
    Session fork = session.fork();
    session.save(directory.file("session"));
    Session loaded = model.engine->load_session(directory.file("session"));
    EXPECT_EQ(kept_positions(loaded), kept_positions(session));
    const auto expected = decode_all(session, later);
    EXPECT_EQ(decode_all(fork, later), expected);
    EXPECT_EQ(decode_all(loaded, later), expected);
    EXPECT_EQ(kept_positions(loaded), kept_positions(session));
  }
}

TEST(MixedLayers, EstimatesHold) {
  const MixedModel model;
  for (const char* method : {"", "snapkv:window=8", "lava:window=8"}) {
    for (const int chunk : {0, 64}) {
      const bool evicts = *method != 0;
      if (!evicts && chunk > 0) continue;
      SessionOptions options = evicts ? evicting_options(method, "32") : full_options();
      options.prefill_chunk = chunk;
      const MemoryEstimate estimate = model.engine->estimate(options, 250, 60);
      Session session = model.engine->open(options);
      model.engine->reset_peak();
      session.prefill(random_tokens(250, kVocab, 2));
      for (const Token token : random_tokens(60, kVocab, 3)) session.decode(token);
      EXPECT_LE(session.statistics().bytes_peak, estimate.kv_bytes_peak) << method << " " << chunk;
      EXPECT_GE(2 * session.statistics().bytes_peak, estimate.kv_bytes_peak) << method << " " << chunk;
    }
  }
}

TEST(MixedLayers, AMethodWithNothingToCutIsRefused) {
  const auto engine = Engine::create(tiny_model({.sliding_window = kWindow}), {.n_threads = 1});
  expect_error(ErrorCode::kInvalidArgument, [&] { engine->open(evicting_options("snapkv", "64")); });
  Session session = engine->open(full_options());
  session.prefill(random_tokens(100, kVocab, 2));
  for (const auto& layer : session.statistics().kept) {
    for (const std::int32_t n : layer) EXPECT_EQ(n, kWindow);
  }
}

TEST(MixedLayers, ProfilesAndHeadFilesFollowTheLayers) {
  const MixedModel model;
  auto importance = std::make_shared<HeadImportance>();
  importance->weight = {{1}, {1, 2, 3}, {}, {4, 4}, {}};  // of cut layers: KV heads or query heads
  auto profile = std::make_shared<UtilityProfile>();
  profile->heads = {0, 3, 0, 1, 0};
  profile->ratios = {0.25};
  profile->kept = {0.1, 0.2, 0.3, 0.4};
  for (const char* method : {"headkv", "duo-attention", "lu-kv-snapkv"}) {
    SessionOptions options = full_options();
    options.eviction = find_method(method).options;
    options.eviction.importance = importance;
    options.eviction.utility_profile = profile;
    options.budget = Budget::parse("60");
    Session session = model.engine->open(options);
    session.prefill(random_tokens(200, kVocab, 2));
    EXPECT_EQ(cut_entries(session, model.options), 60 * 4) << method;
  }
}

}  // namespace
}  // namespace winnow::test
