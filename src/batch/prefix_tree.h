// The prefix tree: sequences whose KV cache is kept, so that a request with the same prefix does not read it again. A
// sequence's parent is the longest other one that it continues.
//
// A sequence and its children share pages (copy on write), which are counted once: each sequence is charged for what it
// holds beyond its parent. A page that the parent has partly filled, and of which the child has a copy, is counted for
// both.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "winnow/session.h"

namespace winnow {

// Shorter matches are no hits: they are the few tokens with which a template begins every chat.
inline constexpr std::int32_t kLeastReused = 16;

struct KeptPrefix;
using PrefixPointer = std::shared_ptr<KeptPrefix>;

// A sequence in the prefix tree, or pending, with the session that holds its KV cache.
struct KeptPrefix {
  std::uint64_t id = 0;
  std::string key;  // the tree never matches sequences of different keys
  std::vector<Token> tokens;
  Session session;          // it has all of `tokens` once is_ready
  bool is_ready = false;    // false: its prefill is under way, and it is not in the tree yet
  bool is_kept = false;     // it stays for later requests; otherwise it is removed with its last user
  bool is_context = false;  // it is a context that was read by itself, not the end of a prompt or of an answer
  int n_users = 0;          // requests under way that were forked from it
  std::int64_t n_hits = 0;
  std::size_t page_bytes = 0;  // bytes of its pages beyond those of `parent`
  // Bytes of its logits, saved queries, scores and recurrent states; until is_ready, all bytes reserved for it.
  std::size_t state_bytes = 0;
  SessionStatistics statistics;
  bool is_saved = false;   // the folder has a file of it, or is about to
  bool is_saving = false;  // another thread reads it to save it, so that it cannot be removed
  std::chrono::steady_clock::time_point ready_at;
  std::optional<std::chrono::steady_clock::time_point> touched;  // when its file's time of last use was set last

  KeptPrefix* parent = nullptr;  // null: it is a root, or not in the tree yet
  std::vector<KeptPrefix*> children;
  PrefixPointer forked_from;     // until is_ready: the prefix that its session was forked from, and is a user of
  std::int32_t snapshot_at = 0;  // until is_ready: its prefill pauses there and keeps a fork; 0: nowhere
  double clock = 0;              // the tree's clock when it was used last
  std::uint64_t last_use = 0;

  std::size_t bytes() const { return page_bytes + state_bytes; }
};

// The tree of cached sequences. Not thread-safe.
class PrefixTree {
 public:
  // At most bytes_limit bytes are kept. With 0, sequences live as long as requests use them.
  explicit PrefixTree(std::size_t bytes_limit) : bytes_limit_(bytes_limit) {}

  // A prefix-cache hit: a request can start from a fork of `prefix` truncated to n_tokens.
  struct Match {
    PrefixPointer prefix;  // null: no hit
    std::int32_t n_tokens = 0;
    std::int32_t n_common = 0;  // the longest common prefix with any sequence, which may not be able to go back to it
  };
  // Returns the longest prefix of `tokens` in the tree. If all of them are cached, but not the logits after the last
  // one, the match is one token shorter.
  Match match_prefix(const std::string& key, std::span<const Token> tokens) const;

  // Adds a sequence whose prefill is about to begin, and for which `bytes` are reserved. Its session was forked from
  // `forked_from` (or null), which the caller has acquired; the new sequence takes that over.
  PrefixPointer add_pending(const std::string& key, std::vector<Token> tokens, Session session,
                            PrefixPointer forked_from, std::size_t bytes, bool is_kept);
  // Returns the sequence with these tokens whose prefill is under way; null if there is none.
  PrefixPointer find_pending(const std::string& key, std::span<const Token> tokens) const;
  // Puts a sequence whose session has all of its tokens into the tree.
  void set_ready(const PrefixPointer& prefix);
  // Adds a sequence that has been read already, to be kept. Returns null, without adding it, if the tree has one with
  // its tokens, which is kept then.
  PrefixPointer keep(const std::string& key, Session session);
  // Adds the first n_tokens of `prefix`, to which it can be truncated, as a node of its own where another sequence is
  // about to branch off. What the two share is counted there, once.
  PrefixPointer branch(const KeptPrefix& prefix, std::int32_t n_tokens);

  void acquire(KeptPrefix& prefix);  // counts one more user
  void release(KeptPrefix& prefix);  // counts one less; removes an unused prefix that is not kept
  void remove(const KeptPrefix& prefix);

  // Removes the unused prefix of the lowest priority: it is cheap to read again per byte, and was not used for long.
  // Returns false if there is none.
  bool remove_one();
  // Removes prefixes until they fit the limit and are few enough to be published on every change.
  void trim();

  // Returns whether a prefix exists only because others branch off it, so that it has no logits of its own.
  static bool is_branch_point(const KeptPrefix& prefix);

  const std::list<PrefixPointer>& all() const { return all_; }
  std::size_t bytes_removable() const;                   // that remove_one() would free, one after the other
  std::size_t bytes() const;                             // of all prefixes, with the bytes reserved for pending ones
  std::size_t bytes_kept() const;                        // of kept ones, to which the limit applies
  std::size_t bytes_in_pool() const;                     // of kept ones, their pages and scores only
  std::int64_t n_removed() const { return n_removed_; }  // by remove_one

 private:
  using Siblings = std::vector<KeptPrefix*>;
  PrefixPointer pointer(const KeptPrefix* prefix) const;
  Siblings& siblings_below(KeptPrefix* parent, const std::string& key);
  void insert(KeptPrefix& prefix);
  void charge(KeptPrefix& prefix) const;
  static double priority(const KeptPrefix& prefix);
  void touch(KeptPrefix& prefix);

  const std::size_t bytes_limit_;
  std::list<PrefixPointer> all_;  // in the order in which they were added
  struct Roots {
    std::string key;
    Siblings siblings;
  };
  std::list<Roots> roots_;
  std::uint64_t n_uses_ = 0, next_id_ = 1;
  std::int64_t n_removed_ = 0;
  double clock_ = 0;  // the highest priority that a removed prefix had
};

}  // namespace winnow
