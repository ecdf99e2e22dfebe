// Shared by the tests of calibration and analyses: a tiny model's engine and random prompts.
#pragma once

#include <memory>
#include <vector>

#include "model/tiny_model.h"
#include "winnow/session.h"

namespace winnow::test {

// Uses one thread, so that tests do not wait for each other's threads and sums have one order.
inline std::shared_ptr<Engine> tiny_engine(const TinyModelOptions& options = {}) {
  const TinyModel file(options);  // the mapping outlives the name
  return Engine::create(Model::load(file.path()), {.n_threads = 1});
}

inline std::vector<Token> tiny_tokens(int n, std::uint32_t seed) {
  return random_tokens(n, TinyModelOptions{}.n_vocab, seed);
}

}  // namespace winnow::test
