// Measures the cost of cutting again after every turn. A text is read and cut to its budget, then goes on in 12 turns
// of 64 tokens, each followed by a cut. For every turn it prints the mean KL to the full cache's predictions of its
// tokens for two sessions: one that was cut after every turn, and one that has read all tokens before the turn at once
// and was cut once.
//   turn_drift MODEL.gguf TEXT_FILE FIRST_TOKEN --kv-evict METHOD --kv-budget BUDGET
#include <winnow/winnow.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

namespace {

constexpr std::size_t kContext = 2000, kTurn = 64, kTurns = 12;
constexpr std::streamsize kMostBytes = std::streamsize{16} << 20;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, "cannot open " + path);
  std::string text(static_cast<std::size_t>(kMostBytes), '\0');
  file.read(text.data(), kMostBytes);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

using Rows = std::vector<std::vector<float>>;  // [tokens][n_vocab] log-probabilities

// Feeds the tokens and returns the session's predictions after each of them but the last. If `keeps_all`, nothing is
// cut.
Rows feed(winnow::Session& session, std::span<const winnow::Token> tokens, bool keeps_all) {
  Rows rows;
  const winnow::PrefillOptions options{.on_progress = {},
                                       .on_logits = [&](std::int32_t, std::span<const float> logits) {
                                         rows.emplace_back(logits.size());
                                         winnow::log_softmax(logits, rows.back());
                                       }};
  if (keeps_all) session.append(tokens, options);
  if (!keeps_all) session.prefill(tokens, options);
  rows.pop_back();
  return rows;
}

double mean_kl(const Rows& full, const Rows& other) {
  double sum = 0;
  for (std::size_t i = 0; i < full.size(); ++i) sum += winnow::kl_divergence(full[i], 0, other[i], 0);
  return sum / static_cast<double>(full.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  std::size_t first = 0;
  const bool is_number = argc == 8 && std::from_chars(argv[3], argv[3] + arguments[3].size(), first).ec == std::errc();
  if (!is_number || arguments[4] != "--kv-evict" || arguments[6] != "--kv-budget") {
    std::cerr << "usage: turn_drift MODEL.gguf TEXT_FILE FIRST_TOKEN --kv-evict METHOD --kv-budget BUDGET\n";
    return 2;
  }
  try {
    const auto model = winnow::Model::load(arguments[1]);
    const auto engine = winnow::Engine::create(model, {.prefill_weights = winnow::PrefillWeights::kFloat});
    const std::vector<winnow::Token> text = model->tokenize(read_file(arguments[2]), true, false);
    if (first > text.size() || text.size() - first < kContext + kTurns * kTurn) {
      throw winnow::Error(winnow::ErrorCode::kInvalidArgument, "the text has fewer tokens than the turns take");
    }
    const auto tokens = std::span(text).subspan(first);
    const winnow::SessionOptions options{.eviction = winnow::EvictionOptions::parse(arguments[5]),
                                         .budget = winnow::Budget::parse(arguments[7])};
    winnow::Session full = engine->open(), again = engine->open(options);
    full.prefill(tokens.first(kContext));
    again.prefill(tokens.first(kContext));
    std::printf("turn  tokens before  cut after every turn  cut once  ratio\n");
    double log_ratios = 0;
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      const std::size_t n_before = kContext + turn * kTurn;
      const auto part = tokens.subspan(n_before, kTurn);
      winnow::Session once = engine->open(options);
      once.prefill(tokens.first(n_before));
      const Rows expected = feed(full, part, true);
      const double kl_once = mean_kl(expected, feed(once, part, true)),
                   kl = mean_kl(expected, feed(again, part, false));
      log_ratios += std::log(kl / kl_once);
      std::printf("%4zu  %13zu  %20.4f  %8.4f  %5.2f\n", turn + 1, n_before, kl, kl_once, kl / kl_once);
      std::fflush(stdout);
    }
    std::printf("%-20s geometric mean of the ratios %15.2f\n", "", std::exp(log_ratios / kTurns));
  } catch (const winnow::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
