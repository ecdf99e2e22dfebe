#include "batch/prefix_cache.h"

#include <utility>

#include "batch/admission.h"
#include "batch/prefix_key.h"

namespace winnow {
namespace {

// Shorter sequences cost less to read again than to keep.
constexpr std::int32_t kLeastKept = 32;

}  // namespace

PrefixTree::Match PrefixCache::match_prefix(const BatchJob& job) const {
  const BatchRequest& request = job.request;
  if (request.reuse == Reuse::kNone) return {};
  PrefixTree::Match match = tree_.match_prefix(job.key, scores_prompt(request) ? request.context : job.tokens);
  if (match.n_tokens < kLeastReused) match = {.n_common = match.n_common};
  if (request.session.eviction.evicts() && !continues(request)) {
    const auto n_context = static_cast<std::int32_t>(request.context.size());
    const auto n_least = n_context > 0 ? n_context : static_cast<std::int32_t>(job.tokens.size());
    if (match.n_tokens < n_least) return {};
  }
  return match;
}

PrefixPointer PrefixCache::find_pending_context(const BatchJob& job) const {
  const BatchRequest& request = job.request;
  return request.reuse == Reuse::kNone ? nullptr : tree_.find_pending(job.key, request.context);
}

bool PrefixCache::keeps(const BatchJob& job) const {
  return job.request.keep && job.request.reuse != Reuse::kNone && options_.context_bytes > 0;
}

bool PrefixCache::keep_prompt(BatchJob& job) {
  if (!keeps(job) || job.session->n_tokens() < kLeastKept) return false;
  const PrefixPointer kept = tree_.keep(job.key, job.session->fork());
  if (!kept) return false;
  tree_.acquire(*kept);
  if (const PrefixPointer before = std::exchange(job.prefix, kept)) tree_.release(*before);
  return true;
}

void PrefixCache::keep_answer(const BatchJob& job, Session session) {
  if (!keeps(job) || session.n_tokens() < kLeastKept) return;
  // Its key promises a prompt that was cut in one go, and the answer was not.
  const BatchRequest& request = job.request;
  if (request.session.eviction.evicts() && !continues(request) && request.context.empty()) return;
  tree_.keep(job.key, std::move(session));
  tree_.trim();
}

}  // namespace winnow
