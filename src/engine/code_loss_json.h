// The cost of codes (SessionStatistics::code_loss) as JSON for the tool and the server.
#pragma once

#include "winnow/session.h"

namespace winnow {

// Returns {"mean_keys", "most_keys", "head": [layer, KV head], "most_values", "n_heads", "n_too_much"}.
template <class Json>
Json code_loss_json(const CodeLoss& loss) {
  return {{"mean_keys", loss.mean_keys},     {"most_keys", loss.most_keys}, {"head", {loss.layer, loss.kv_head}},
          {"most_values", loss.most_values}, {"n_heads", loss.n_heads},     {"n_too_much", loss.n_too_much}};
}

}  // namespace winnow
