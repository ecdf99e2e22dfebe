// Measures whether loss budgets keep what they promise. Passages of a text are read into sessions with such budgets and
// with shares of the bytes, and the 64 tokens that follow are fed to each. For every passage it prints the mean KL to
// the full cache's predictions of these tokens: for every share of the bytes, as the search estimated it on the
// passage's own last tokens and as measured; and for each promise, the budget taken, the expected KL and the measured
// KL.
//   promised_loss MODEL.gguf TEXT_FILE FIRST_PASSAGE PASSAGES METHOD kl=0.02,kl=0.05 [TOKENS]
#include <winnow/winnow.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kContinuation = 64;
constexpr std::streamsize kMostBytes = std::streamsize{16} << 20;
constexpr const char* kParts[] = {"2", "3", "4", "5", "7", "10", "14", "20", "30"};  // per cent

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, "cannot open " + path);
  std::string text(static_cast<std::size_t>(kMostBytes), '\0');
  file.read(text.data(), kMostBytes);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

using Rows = std::vector<std::vector<float>>;  // [tokens][n_vocab] log-probabilities

Rows feed(winnow::Session& session, std::span<const winnow::Token> tokens) {
  Rows rows;
  session.append(tokens, {.on_progress = {}, .on_logits = [&](std::int32_t, std::span<const float> logits) {
                            rows.emplace_back(logits.size());
                            winnow::log_softmax(logits, rows.back());
                          }});
  return rows;
}

double mean_kl(const Rows& full, const Rows& other) {
  double sum = 0;
  for (std::size_t i = 0; i < full.size(); ++i) sum += winnow::kl_divergence(full[i], 0, other[i], 0);
  return sum / static_cast<double>(full.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) {
    std::cerr << "usage: promised_loss MODEL.gguf TEXT_FILE FIRST_PASSAGE PASSAGES METHOD kl=A,kl=B [TOKENS]\n";
    return 2;
  }
  try {
    const auto model = winnow::Model::load(argv[1]);
    const auto engine = winnow::Engine::create(model, {.prefill_weights = winnow::PrefillWeights::kFloat});
    const std::vector<winnow::Token> text = model->tokenize(read_file(argv[2]), true, false);
    const std::size_t n_tokens = argc == 8 ? std::strtoul(argv[7], nullptr, 10) : 2000;
    const std::size_t first = std::strtoul(argv[3], nullptr, 10), n_passages = std::strtoul(argv[4], nullptr, 10);
    const auto method = winnow::EvictionOptions::parse(argv[5]);
    std::vector<std::string> promises;
    const std::string list = argv[6];
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      promises.push_back(list.substr(at, comma - at));
      at = comma + 1;
    }
    for (std::size_t p = first; p < first + n_passages; ++p) {
      const std::size_t begin = p * (n_tokens + kContinuation);
      if (begin + n_tokens + kContinuation > text.size()) break;
      const auto tokens = std::span(text).subspan(begin, n_tokens + kContinuation);
      std::vector<winnow::Session> sessions;
      sessions.push_back(engine->open());
      for (const char* part : kParts) {
        sessions.push_back(
            engine->open({.eviction = method, .budget = winnow::Budget::parse(std::string(part) + "%bytes")}));
      }
      for (const std::string& promise : promises) {
        sessions.push_back(engine->open({.eviction = method, .budget = winnow::Budget::parse(promise)}));
      }
      std::vector<winnow::Session*> pointers;
      for (winnow::Session& session : sessions) pointers.push_back(&session);
      engine->prefill(pointers, tokens.first(n_tokens));
      const Rows full = feed(sessions[0], tokens.subspan(n_tokens));
      std::map<std::string, double> measured;
      for (const winnow::Session& session : sessions) {
        const auto promise = session.statistics().promise;
        if (!promise) continue;
        for (const auto& trial : promise->tried) measured[trial.budget.text()] = trial.kl;
      }
      std::size_t i = 1;
      for (const char* part : kParts) {
        const auto found = measured.find(std::string(part) + "%bytes");
        const double kl = mean_kl(full, feed(sessions[i++], tokens.subspan(n_tokens)));
        std::printf("part %zu %s %.5f %.5f\n", p, part, found == measured.end() ? -1.0 : found->second, kl);
      }
      for (const std::string& asked : promises) {
        const auto promise = sessions[i].statistics().promise;
        const double kl = mean_kl(full, feed(sessions[i++], tokens.subspan(n_tokens)));
        std::printf("promise %zu %s %s %.5f %.5f\n", p, asked.c_str(), promise->taken.text().c_str(), promise->expected,
                    kl);
      }
      std::fflush(stdout);
    }
  } catch (const winnow::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
