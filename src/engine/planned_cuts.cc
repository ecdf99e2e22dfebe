#include "engine/planned_cuts.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/session_options.h"
#include "eviction/cut/fitting_window.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kMostListed = 20;

// Returns the method, budget and length of a cut as text.
std::string name_of(const PlannedCut& cut) {
  return cut.options.eviction.text() + (cut.options.budget ? " with the budget " + cut.options.budget->text() : "") +
         " at " + std::to_string(cut.n_tokens) + " tokens";
}

}  // namespace

void check_cuts(const Engine& engine, std::span<const PlannedCut> cuts) {
  std::vector<std::string> failures;
  std::set<std::string> known;
  ErrorCode code = ErrorCode::kInvalidArgument;
  for (const PlannedCut& cut : cuts) {
    try {
      engine.estimate(cut.options, cut.n_tokens, 0);
    } catch (const Error& error) {
      // These errors come from the machine, not from the cuts.
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kOutOfMemory) throw;
      const std::string failure = name_of(cut) + ": " + error.what();
      if (!known.insert(failure).second) continue;
      if (failures.empty()) code = error.code();
      failures.push_back(failure);
    }
  }
  if (failures.empty()) return;
  if (failures.size() == 1) throw Error(code, failures.front());
  std::string list = std::to_string(failures.size()) + " of these cuts cannot be made:";
  for (std::size_t i = 0; i < std::min(failures.size(), kMostListed); ++i) list += "\n  " + failures[i];
  if (failures.size() > kMostListed) list += "\n  and " + std::to_string(failures.size() - kMostListed) + " more";
  throw Error(code, list);
}

EvictionOptions with_window_of_cut(const Session& session, const EvictionOptions& method, std::int32_t n_tokens) {
  const Session::Impl& impl = session.impl();
  if (impl.options.budget->unit == Budget::Unit::kLoss) return method;  // such cuts begin with all entries
  return with_fitting_window(method, cut_shape(impl.shape, n_tokens, impl.total_entries(n_tokens)));
}

}  // namespace winnow
