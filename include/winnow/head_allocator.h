// How a layer's budget is shared among its KV heads.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/head_table.h"
#include "winnow/ranking.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// What a head allocator looks at. Numbers do not include protected entries.
struct HeadRequest {
  std::int64_t budget;               // of the layer, at most the sum of the candidates
  LayerRanking& ranking;             // the layer's candidates, best first
  std::vector<double> weights = {};  // [n_kv_head] of the table, where there is one
};

// [n_kv_head] candidates of each head.
std::vector<std::int64_t> head_caps(const LayerRanking& ranking);

// Stateless; one instance per process, safe to use from any thread.
class HeadAllocator {
 public:
  virtual ~HeadAllocator() = default;
  virtual std::vector<Option> options() const { return {}; }

  // [n_kv_head] real-valued, between 0 and the head's candidates, with sum request.budget.
  virtual std::vector<double> shares(const HeadRequest& request, const EvictionOptions& options) const = 0;

  // [n_kv_head] what the head can still get at most when the layer's budget shrinks to any smaller one: a stage of the
  // cascade keeps that many. By default the shares, rounded up.
  virtual std::vector<std::int64_t> ceilings(const HeadRequest& request, const EvictionOptions& options) const;

  virtual const HeadTable* table() const { return nullptr; }

  // Goes with the layer allocator of the same kind only.
  virtual bool is_global() const { return false; }
};

}  // namespace winnow
