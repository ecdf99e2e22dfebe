// The size that a loss budget came to, as JSON for the tool's and the server's results.
#pragma once

#include "winnow/session.h"

namespace winnow {

// Returns {"asked", "budget", "expected", "n_tokens", "tried": [{"budget", "kl"}]}. Json: nlohmann's, ordered or not.
template <typename Json>
Json promise_json(const LossPromise& promise) {
  Json tried = Json::array();
  for (const LossPromise::Trial& trial : promise.tried) {
    tried.push_back({{"budget", trial.budget.text()}, {"kl", trial.kl}});
  }
  return {{"asked", promise.asked},
          {"budget", promise.taken.text()},
          {"expected", promise.expected},
          {"n_tokens", promise.n_tokens},
          {"tried", tried}};
}

}  // namespace winnow
