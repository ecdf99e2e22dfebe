// Sequences whose cache is kept, so that a request that begins like one of them does not read that beginning again: a
// tree in which a sequence stands below the longest other one that it continues.
//
// Pages are shared between a sequence and those below it (copy on write), and counted once: each is charged for what it
// holds beyond the one above it. (A page of which the one above has a copy of its own, as far as it goes, is counted
// for both.)
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

// A few tokens that a template begins every chat with are no beginning.
inline constexpr std::int32_t kLeastReused = 16;

struct KeptPrefix;
using PrefixPointer = std::shared_ptr<KeptPrefix>;

struct KeptPrefix {
  std::uint64_t id = 0;
  std::string key;  // sequences of different keys have nothing in common
  std::vector<Token> tokens;
  Session session;          // complete once is_ready
  bool is_ready = false;    // otherwise it is being read, and not in the tree
  bool is_kept = false;     // for later requests; otherwise it goes with its last user
  bool is_context = false;  // a context that was read by itself, not an end of a prompt or of an answer
  int n_users = 0;          // requests under way that began with it
  std::int64_t n_hits = 0;
  std::size_t page_bytes = 0;  // beyond those of `parent`
  // Logits, saved queries, scores and recurrent states; while it is read, all that is promised.
  std::size_t state_bytes = 0;
  SessionStatistics statistics;
  bool is_saved = false;   // in the folder for saved contexts, or on its way there
  bool is_saving = false;  // another thread reads it to save it: it stays until that is over
  std::chrono::steady_clock::time_point ready_at;
  std::optional<std::chrono::steady_clock::time_point> touched;  // when its file was told last that it is used

  KeptPrefix* parent = nullptr;
  std::vector<KeptPrefix*> children;
  PrefixPointer begun_with;  // of one that is being read: what its session was forked from, and uses until it is ready
  std::int32_t mark = 0;     // likewise: tokens after which a copy is kept on the way; 0: none
  double clock = 0;          // of the tree, when it was used last
  std::uint64_t last_use = 0;

  std::size_t bytes() const { return page_bytes + state_bytes; }
};

// What a session holds beside its pages, in bytes: saved queries of its method, recurrent states, and logits.
std::size_t state_bytes(const ModelInfo& model, const SessionOptions& options);

// Not thread-safe.
class PrefixTree {
 public:
  // bytes_limit: of what is kept. 0: sequences live as long as requests use them.
  explicit PrefixTree(std::size_t bytes_limit) : bytes_limit_(bytes_limit) {}

  // Where a request can begin: with a fork of `prefix`, truncated to n_tokens. Null: with nothing.
  struct Match {
    PrefixPointer prefix;
    std::int32_t n_tokens = 0;
    std::int32_t n_common = 0;  // tokens that some kept sequence begins with, although it may not go back to them
  };
  // The longest beginning of `tokens` that is there. Where all of them are, either the logits after the last one are
  // there, too, or one token less is found.
  Match find(const std::string& key, std::span<const Token> tokens) const;

  // A sequence that has to be read; `bytes` are promised to it. begun_with: what its session was forked from, or null;
  // its use by who calls goes over to the sequence.
  PrefixPointer begin(const std::string& key, std::vector<Token> tokens, Session session, PrefixPointer begun_with,
                      std::size_t bytes, bool is_kept);
  // One with these tokens that is being read. Null: there is none.
  PrefixPointer find_unready(const std::string& key, std::span<const Token> tokens) const;
  // It has been read: its session has all of its tokens.
  void set_ready(const PrefixPointer& prefix);
  // A sequence that has been read already. Null, and nothing is added, where one with its tokens is there.
  PrefixPointer add(const std::string& key, Session session, bool is_kept);
  // Where sequences part in the middle of `prefix`: its first n_tokens, which it can be cut back to. What they share is
  // from then on counted there, once.
  PrefixPointer branch(const KeptPrefix& prefix, std::int32_t n_tokens);

  void use(KeptPrefix& prefix);      // by one more request
  void release(KeptPrefix& prefix);  // by one less; goes at once if it is not kept
  void remove(const KeptPrefix& prefix);

  // Removes what is cheapest to read again per byte and has not been used for longest, of what nobody uses. False if
  // there is none.
  bool remove_one();
  void trim();  // to the limit, and to a number that can be looked through

  // A place where others part, without logits of its own.
  static bool is_branching(const KeptPrefix& prefix);

  const std::list<PrefixPointer>& all() const { return all_; }
  std::size_t bytes() const;                             // of all, and promised to those being read
  std::size_t bytes_kept() const;                        // of kept ones: what the limit is about
  std::size_t bytes_in_pool() const;                     // of kept ones, in pages and scores alone
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
  std::list<PrefixPointer> all_;  // in the order in which they came
  struct Roots {
    std::string key;
    Siblings siblings;
  };
  std::list<Roots> roots_;
  std::uint64_t n_uses_ = 0, next_id_ = 1;
  std::int64_t n_removed_ = 0;
  double clock_ = 0;  // the highest priority of what was removed
};

}  // namespace winnow
