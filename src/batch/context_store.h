// Contexts that requests share: read once, compressed for any question, forked by reference.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch/context_seal.h"
#include "winnow/session.h"

namespace winnow {

struct BatchContext {
  std::uint64_t id = 0;
  std::string key;  // of the session's options
  std::vector<Token> tokens;
  Session session;  // complete once is_ready
  bool is_ready = false;
  bool is_kept = false;  // for later requests: in the store's limit, and saved
  int n_users = 0;       // requests under way
  std::int64_t n_hits = 0;
  std::uint64_t last_use = 0;  // counts uses of the store
  std::size_t bytes = 0;       // promised: the peak while it is read, its pages and saved queries afterwards
  SessionStatistics statistics;
  bool is_saved = false;
  std::chrono::steady_clock::time_point ready_at;
};
using ContextPointer = std::shared_ptr<BatchContext>;

// What a session holds beside its pages, in bytes: saved queries of its method, and logits.
std::size_t state_bytes(const ModelInfo& model, const SessionOptions& options);

// The text of everything that decides what a session keeps of given tokens.
std::string context_key(const SessionOptions& options);

// Not thread-safe.
class ContextStore {
 public:
  // bytes_limit: of kept contexts. An empty folder: nothing is saved.
  ContextStore(std::shared_ptr<Engine> engine, std::size_t bytes_limit, std::string folder,
               std::function<void(const std::string&)> on_warning);

  // Null if there is none, ready or being read.
  ContextPointer find(const std::string& key, std::span<const Token> tokens) const;
  // Adds one that has to be read; `bytes` are promised to it.
  ContextPointer add(const SessionOptions& options, std::vector<Token> tokens, std::size_t bytes, bool is_kept);
  void use(BatchContext& context);      // by one more request
  void release(BatchContext& context);  // by one less; goes at once if it is not kept
  void set_ready(BatchContext& context);
  void remove(const BatchContext& context);

  // Removes the least recently used context that nobody uses, other than `spared`. False if there is none.
  bool remove_one(const BatchContext* spared);
  // Removes as many as have to go for the limit.
  void trim();

  const std::list<ContextPointer>& contexts() const { return contexts_; }
  std::size_t bytes() const;           // promised to all
  std::size_t bytes_kept() const;      // of kept ones: what the limit is about
  std::size_t bytes_in_pages() const;  // of kept ones, in pages alone
  std::int64_t n_removed() const { return n_removed_; }

  // Reads the folder: newest first, while they fit the limits. Damaged files, and those that others made, are warned
  // about and passed over.
  void restore();
  // Saves one context that has waited for at least `age`. False if there is none.
  bool save_one(std::chrono::steady_clock::duration age);

 private:
  std::string path_of(const BatchContext& context) const;
  void save(const BatchContext& context) const;
  void restore_file(const std::string& path);

  std::shared_ptr<Engine> engine_;
  std::size_t bytes_limit_;
  std::string folder_;
  std::optional<ContextSeal> seal_;  // with a folder
  std::function<void(const std::string&)> on_warning_;
  std::list<ContextPointer> contexts_;
  std::uint64_t n_uses_ = 0, next_id_ = 1;
  std::int64_t n_removed_ = 0;
};

}  // namespace winnow
