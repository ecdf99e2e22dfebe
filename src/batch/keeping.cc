// What of a request stays for later ones: in memory, and in the folder for saved contexts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "batch/batch_impl.h"
#include "batch/prefix_key.h"

namespace winnow {
namespace {

// Fewer tokens cost less to read again than to keep.
constexpr std::int32_t kLeastKept = 32;

}  // namespace

bool Batch::Impl::keeps(const BatchJob& job) const {
  return job.request.keep && job.request.reuse != Reuse::kNone && options.context_bytes > 0;
}

void Batch::Impl::keep_prompt(BatchJob& job) {
  if (!keeps(job) || job.session->n_tokens() < kLeastKept) return;
  const PrefixPointer kept = tree.add(job.key, job.session->fork(), true);
  if (!kept) return;
  // Its pages are promised with it from here on, where nothing writes to them.
  tree.use(*kept);
  if (const PrefixPointer before = std::exchange(job.origin, kept)) tree.release(*before);
  const bool is_whole = job.session->n_tokens() == static_cast<std::int32_t>(job.tokens.size());
  if (is_whole && job.request.session.decode_cut == SessionOptions::DecodeCut::kKeep) {
    job.promised = needs_behind(job.request, *engine, {.n_tokens = job.session->n_tokens()}).own;
  }
  make_room(0);
  tree.trim();
  has_changed = true;
}

void Batch::Impl::keep_answer(const BatchJob& job, Session session) {
  if (!keeps(job) || session.n_tokens() < kLeastKept) return;
  tree.add(job.key, std::move(session), true);
  tree.trim();
}

void Batch::Impl::restore() {
  std::vector<SavedPrefix> saved;
  files->restore(saved_prefix_keys, [&](SavedPrefix prefix) {
    const PrefixPointer added = tree.add(prefix.key, std::move(prefix.session), true);
    if (added && tree.bytes_kept() > options.context_bytes) {
      tree.remove(*added);
      return false;
    }
    if (added) added->is_saved = true;
    return true;
  });
  // The newest came first, and is to be the one used last.
  const std::vector<PrefixPointer> restored(tree.all().begin(), tree.all().end());
  for (auto prefix = restored.rbegin(); prefix != restored.rend(); ++prefix) {
    tree.use(**prefix);
    tree.release(**prefix);
  }
}

bool Batch::Impl::save_one(std::chrono::steady_clock::duration context_age,
                           std::chrono::steady_clock::duration other_age) {
  if (!files) return false;
  const auto now = std::chrono::steady_clock::now();
  for (const PrefixPointer& prefix : tree.all()) {
    if (!prefix->is_ready || !prefix->is_kept || prefix->is_saved) continue;
    if (!prefix->is_context && !prefix->children.empty()) continue;
    if (prefix->ready_at > now - (prefix->is_context ? context_age : other_age)) continue;
    const std::vector<std::string> keys = saved_prefix_keys(prefix->session.options(), prefix->tokens);
    if (std::find(keys.begin(), keys.end(), prefix->key) == keys.end()) continue;
    prefix->is_saved = true;  // also where it fails: a full disk is not asked again and again
    files->save(prefix->key, prefix->session);
    return true;
  }
  return false;
}

void Batch::Impl::remove_file(const KeptPrefix& prefix) {
  if (files && prefix.is_saved) files->remove(prefix.key, prefix.tokens);
}

}  // namespace winnow
