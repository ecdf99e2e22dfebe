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
// What is used all the time need not say so more often.
constexpr std::chrono::minutes kTouchEvery{1};

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
      tree.remove(*added);  // it and the rest come when they are asked for
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

bool Batch::Impl::awaits_save(const KeptPrefix& prefix) const {
  if (!files || !prefix.is_ready || !prefix.is_kept || prefix.is_saved) return false;
  if (!prefix.is_context && !prefix.children.empty()) return false;
  const std::vector<std::string> keys = saved_prefix_keys(prefix.session.options(), prefix.tokens);
  return std::find(keys.begin(), keys.end(), prefix.key) != keys.end();
}

std::optional<BatchClock::time_point> Batch::Impl::next_save(std::chrono::steady_clock::duration other_age) const {
  std::optional<BatchClock::time_point> next;
  for (const PrefixPointer& prefix : tree.all()) {
    if (!awaits_save(*prefix)) continue;
    const BatchClock::time_point due = prefix->is_context ? prefix->ready_at : prefix->ready_at + other_age;
    next = next ? std::min(*next, due) : due;
  }
  return next;
}

bool Batch::Impl::save_one(std::chrono::steady_clock::duration context_age,
                           std::chrono::steady_clock::duration other_age) {
  const auto now = std::chrono::steady_clock::now();
  for (const PrefixPointer& prefix : tree.all()) {
    if (prefix->ready_at > now - (prefix->is_context ? context_age : other_age) || !awaits_save(*prefix)) continue;
    prefix->is_saved = true;  // also where it fails: a full disk is not asked again and again
    files->save(prefix->key, prefix->session);
    return true;
  }
  return false;
}

void Batch::Impl::touch_files(KeptPrefix& prefix) const {
  const auto now = BatchClock::now();
  for (KeptPrefix* used = &prefix; files && used != nullptr; used = used->parent) {
    if (!used->is_saved || (used->touched && now - *used->touched < kTouchEvery)) continue;
    used->touched = now;
    used->is_saved = files->touch(used->key, used->tokens);  // else it is saved again
  }
}

}  // namespace winnow
