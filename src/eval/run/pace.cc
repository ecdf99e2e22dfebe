#include "eval/run/pace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/stopwatch.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr std::int32_t kTokens = 128;
constexpr double kMostSeconds = 3;

// Returns tokens per second. If time is over before the last layer, the share of the layers that are done counts.
double read_once(Engine& engine, std::span<const Token> tokens, std::int32_t n_ctx) {
  Session session = engine.open({.n_ctx = n_ctx});
  const Stopwatch watch;
  double share = 0;
  try {
    session.prefill(tokens, {.on_progress = [&](std::int64_t done, std::int64_t total) {
                      share = static_cast<double>(done) / static_cast<double>(total);
                      return watch.seconds() < kMostSeconds;
                    }});
    share = 1;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
  }
  return share * static_cast<double>(tokens.size()) / watch.seconds();
}

}  // namespace

std::int64_t tokens_in_a_minute(Engine& engine, std::int32_t n_ctx) {
  constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();
  std::vector<Token> tokens;
  const std::int32_t n_vocab = engine.model()->info().n_vocab;
  for (std::int32_t i = 0; i < std::min(kTokens, n_ctx); ++i) tokens.push_back(i * 7 % n_vocab);
  try {
    read_once(engine, tokens, n_ctx);  // loads the weights from the disk
    const double per_minute = 60 * read_once(engine, tokens, n_ctx);
    return per_minute < 1e15 ? std::max<std::int64_t>(std::llround(per_minute), 1) : kNoBound;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    return kNoBound;
  }
}

}  // namespace winnow::eval
