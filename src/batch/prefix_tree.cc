#include "batch/prefix_tree.h"

#include <algorithm>
#include <set>
#include <utility>

#include "batch/admission.h"
#include "engine/engine_impl.h"

namespace winnow {
namespace {

// Returns the length of the longest common prefix, whose first `known` tokens are known to be the same.
std::size_t n_common(std::span<const Token> a, std::span<const Token> b, std::size_t known) {
  const std::size_t n = std::min(a.size(), b.size());
  const auto first = static_cast<std::ptrdiff_t>(std::min(known, n));
  return static_cast<std::size_t>(
      std::mismatch(a.begin() + first, a.begin() + static_cast<std::ptrdiff_t>(n), b.begin() + first).first -
      a.begin());
}

std::size_t length(const KeptPrefix* prefix) { return prefix == nullptr ? 0 : prefix->tokens.size(); }

// Returns whether a prefix can leave memory, once its children have.
bool is_removable(const KeptPrefix& prefix) { return prefix.is_ready && !prefix.is_saving && prefix.n_users == 0; }

// The most prefixes, however small, since every change publishes all of them to other threads.
constexpr std::size_t kMostKept = 256;

}  // namespace

PrefixTree::Match PrefixTree::match_prefix(const std::string& key, std::span<const Token> tokens) const {
  Match best;
  const KeptPrefix* found = nullptr;
  const auto roots = std::find_if(roots_.begin(), roots_.end(), [&](const Roots& other) { return other.key == key; });
  const Siblings* siblings = roots == roots_.end() ? nullptr : &roots->siblings;
  std::size_t depth = 0;
  while (siblings != nullptr) {
    const KeptPrefix* below = nullptr;
    for (const KeptPrefix* prefix : *siblings) {
      const std::size_t n = n_common(prefix->tokens, tokens, depth);
      best.n_common = std::max(best.n_common, static_cast<std::int32_t>(n));
      const bool is_whole = n == prefix->tokens.size();
      // A request samples from the logits after its last token: without them that token is read again.
      const bool has_logits = is_whole && !is_branch_point(*prefix);
      const std::size_t n_wanted = has_logits ? n : std::min(n, tokens.size() - 1);
      const std::int32_t n_usable = prefix->session.truncatable(static_cast<std::int32_t>(n_wanted));
      if (n_usable > best.n_tokens) {
        best.n_tokens = n_usable;
        found = prefix;
      }
      if (is_whole) below = prefix;
    }
    depth = length(below);
    siblings = below == nullptr ? nullptr : &below->children;
  }
  if (found != nullptr) best.prefix = pointer(found);
  return best;
}

PrefixPointer PrefixTree::add_pending(const std::string& key, std::vector<Token> tokens, Session session,
                                      PrefixPointer forked_from, std::size_t bytes, bool is_kept) {
  all_.push_back(std::make_shared<KeptPrefix>(KeptPrefix{.id = next_id_++,
                                                         .key = key,
                                                         .tokens = std::move(tokens),
                                                         .session = std::move(session),
                                                         .is_kept = is_kept && bytes_limit_ > 0,
                                                         .is_context = true,
                                                         .state_bytes = bytes,
                                                         .forked_from = std::move(forked_from)}));
  return all_.back();
}

PrefixPointer PrefixTree::find_pending(const std::string& key, std::span<const Token> tokens) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const PrefixPointer& prefix) {
    return !prefix->is_ready && std::ranges::equal(prefix->tokens, tokens) && prefix->key == key;
  });
  return found == all_.end() ? nullptr : *found;
}

void PrefixTree::set_ready(const PrefixPointer& prefix) {
  prefix->is_ready = true;
  prefix->ready_at = std::chrono::steady_clock::now();
  prefix->statistics = prefix->session.statistics();
  prefix->state_bytes =
      winnow::state_bytes(prefix->session.model()->info(), prefix->session.options()) + prefix->statistics.score_bytes;
  insert(*prefix);
  touch(*prefix);
  if (const PrefixPointer above = std::exchange(prefix->forked_from, nullptr)) release(*above);
}

PrefixPointer PrefixTree::keep(const std::string& key, Session session) {
  std::vector<Token> tokens(session.tokens().begin(), session.tokens().end());
  const Match match = match_prefix(key, tokens);
  if (match.prefix && match.n_tokens == static_cast<std::int32_t>(tokens.size())) {
    match.prefix->is_kept |= bytes_limit_ > 0;
    touch(*match.prefix);
    return nullptr;
  }
  const PrefixPointer prefix = add_pending(key, std::move(tokens), std::move(session), nullptr, 0, true);
  prefix->is_context = false;
  set_ready(prefix);
  return prefix;
}

PrefixPointer PrefixTree::branch(const KeptPrefix& prefix, std::int32_t n_tokens) {
  Session session = prefix.session.fork();
  session.truncate(n_tokens);
  std::vector<Token> tokens(session.tokens().begin(), session.tokens().end());
  const PrefixPointer point =
      add_pending(prefix.key, std::move(tokens), std::move(session), nullptr, 0, prefix.is_kept);
  point->is_context = false;
  set_ready(point);
  return point;
}

bool PrefixTree::is_branch_point(const KeptPrefix& prefix) { return prefix.session.impl().logits.empty(); }

PrefixPointer PrefixTree::pointer(const KeptPrefix* prefix) const {
  return *std::find_if(all_.begin(), all_.end(), [&](const PrefixPointer& other) { return other.get() == prefix; });
}

PrefixTree::Siblings& PrefixTree::siblings_below(KeptPrefix* parent, const std::string& key) {
  if (parent != nullptr) return parent->children;
  const auto found = std::find_if(roots_.begin(), roots_.end(), [&](const Roots& other) { return other.key == key; });
  return found == roots_.end() ? roots_.emplace_back(Roots{.key = key, .siblings = {}}).siblings : found->siblings;
}

void PrefixTree::insert(KeptPrefix& prefix) {
  KeptPrefix* parent = nullptr;
  const auto shared = [&](const KeptPrefix* other) { return n_common(other->tokens, prefix.tokens, length(parent)); };
  for (;;) {
    const Siblings& siblings = siblings_below(parent, prefix.key);
    const auto above = std::find_if(siblings.begin(), siblings.end(),
                                    [&](const KeptPrefix* other) { return shared(other) == length(other); });
    if (above == siblings.end()) break;
    parent = *above;
  }
  // Its siblings that continue it become its children.
  Siblings& siblings = siblings_below(parent, prefix.key);
  std::erase_if(siblings, [&](KeptPrefix* other) {
    if (shared(other) < length(&prefix)) return false;
    other->parent = &prefix;
    prefix.children.push_back(other);
    return true;
  });
  prefix.parent = parent;
  siblings.push_back(&prefix);
  charge(prefix);
  for (KeptPrefix* child : prefix.children) charge(*child);
}

void PrefixTree::charge(KeptPrefix& prefix) const {
  const RaggedCache& cache = prefix.session.impl().cache;
  prefix.page_bytes =
      prefix.parent == nullptr ? cache.bytes_in_pages() : cache.bytes_beyond(prefix.parent->session.impl().cache);
  // Every rank has the same limit, so the rank that holds most is charged, assuming it shares as large a part with the
  // parent.
  const std::size_t own = cache.bytes_in_pages(), most = prefix.statistics.rank_bytes_in_pages;
  if (most <= own) return;
  const double part = own == 0 ? 1 : static_cast<double>(prefix.page_bytes) / static_cast<double>(own);
  prefix.page_bytes = static_cast<std::size_t>(part * static_cast<double>(most));
}

// Returns the priority of GreedyDual-Size (Cao and Irani, 1997): the tokens to read again per byte, plus the tree's
// clock at the last use, which stands at the highest priority that was removed so far.
double PrefixTree::priority(const KeptPrefix& prefix) {
  return prefix.clock + static_cast<double>(length(&prefix) - length(prefix.parent)) /
                            static_cast<double>(std::max<std::size_t>(prefix.bytes(), 1));
}

void PrefixTree::touch(KeptPrefix& prefix) {
  ++n_uses_;
  for (KeptPrefix* above = &prefix; above != nullptr; above = above->parent) {  // it uses its parents' pages, too
    above->clock = clock_;
    above->last_use = n_uses_;
  }
}

void PrefixTree::acquire(KeptPrefix& prefix) {
  ++prefix.n_users;
  touch(prefix);
}

void PrefixTree::release(KeptPrefix& prefix) {
  --prefix.n_users;
  if (prefix.n_users == 0 && !(prefix.is_kept && prefix.is_ready)) remove(prefix);
}

void PrefixTree::remove(const KeptPrefix& prefix) {
  const PrefixPointer alive = pointer(&prefix);
  if (prefix.is_ready) {
    Siblings& siblings = siblings_below(prefix.parent, prefix.key);
    std::erase(siblings, &prefix);
    for (KeptPrefix* child : alive->children) {
      child->parent = prefix.parent;
      siblings.push_back(child);
      charge(*child);
    }
    std::erase_if(roots_, [](const Roots& roots) { return roots.siblings.empty(); });
  }
  all_.remove(alive);
  const KeptPrefix* above_it = prefix.is_ready ? prefix.parent : nullptr;
  if (above_it != nullptr && above_it->n_users == 0 && above_it->children.size() == 1 && is_branch_point(*above_it)) {
    remove(*above_it);  // it is no branch point any more
  }
  if (const PrefixPointer above = std::exchange(alive->forked_from, nullptr)) release(*above);
}

bool PrefixTree::remove_one() {
  const KeptPrefix* first = nullptr;
  for (const PrefixPointer& prefix : all_) {
    // The children of a branch point hold its pages, so removing it would free no memory.
    if (!is_removable(*prefix) || prefix->children.size() > 1) continue;
    const auto order = [](const KeptPrefix& of) { return std::pair(priority(of), of.last_use); };
    if (first == nullptr || order(*prefix) < order(*first)) first = prefix.get();
  }
  if (first == nullptr) return false;
  clock_ = std::max(clock_, priority(*first));
  remove(*first);
  ++n_removed_;
  return true;
}

void PrefixTree::trim() {
  while ((bytes_kept() > bytes_limit_ || all_.size() > kMostKept) && remove_one()) {
  }
}

std::size_t PrefixTree::bytes_removable() const {
  std::set<const KeptPrefix*> shared;  // a prefix that stays keeps the pages of all before it
  for (const PrefixPointer& prefix : all_) {
    if (is_removable(*prefix)) continue;
    for (const KeptPrefix* before = prefix->parent; before != nullptr; before = before->parent) shared.insert(before);
  }
  std::size_t sum = 0;
  for (const PrefixPointer& prefix : all_) {
    if (!is_removable(*prefix)) continue;
    sum += prefix->state_bytes + (shared.contains(prefix.get()) ? 0 : prefix->page_bytes);
  }
  return sum;
}

std::size_t PrefixTree::bytes() const {
  std::size_t sum = 0;
  for (const PrefixPointer& prefix : all_) sum += prefix->bytes();
  return sum;
}

std::size_t PrefixTree::bytes_kept() const {
  std::size_t sum = 0;
  for (const PrefixPointer& prefix : all_) sum += prefix->is_ready && prefix->is_kept ? prefix->bytes() : 0;
  return sum;
}

std::size_t PrefixTree::bytes_in_pool() const {
  std::size_t sum = 0;
  for (const PrefixPointer& prefix : all_) {
    if (prefix->is_ready && prefix->is_kept) sum += prefix->page_bytes + prefix->statistics.score_bytes;
  }
  return sum;
}

}  // namespace winnow
