// The interface of head allocators, which share a layer's budget among its KV heads.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/head_table.h"
#include "winnow/ranking.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// The input of a head allocator. Numbers do not include protected entries (sinks and observation window).
struct HeadRequest {
  std::int64_t budget;               // entries that the layer keeps, at most the sum of the candidates
  LayerRanking& ranking;             // the layer's candidates, best first
  std::vector<double> weights = {};  // [n_kv_head] weights of table(); empty where there is none
};

// Returns the number of candidates of each head: [n_kv_head].
std::vector<std::int64_t> head_caps(const LayerRanking& ranking);

// A head allocator. Stateless: there is one instance per process, and it may be used from any thread.
class HeadAllocator {
 public:
  virtual ~HeadAllocator() = default;
  // Returns the options that the allocator reads.
  virtual std::vector<Option> options() const { return {}; }

  // Returns the heads' shares of the budget: [n_kv_head] real numbers between 0 and the head's candidates, whose sum is
  // request.budget. They are rounded to entries by largest remainder afterwards.
  virtual std::vector<double> shares(const HeadRequest& request, const EvictionOptions& options) const = 0;

  // Returns the most entries that each head [n_kv_head] can still get under this budget of the layer or any smaller
  // one: a stage of the cascade keeps that many. By default these are the shares, rounded up.
  virtual std::vector<std::int64_t> ceilings(const HeadRequest& request, const EvictionOptions& options) const;

  // Returns the table of static weights that the allocator reads, or null.
  virtual const HeadTable* table() const { return nullptr; }

  // Returns true for the allocator of a global ranking, which goes only with the layer allocator of the same kind.
  virtual bool is_global() const { return false; }
};

}  // namespace winnow
