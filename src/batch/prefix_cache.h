// The prefix cache: decides which cached prefixes requests hit, and which parts of requests are kept for later ones.
#pragma once

#include <cstddef>
#include <memory>

#include "batch/job.h"
#include "batch/prefix_storage.h"
#include "batch/prefix_tree.h"

namespace winnow {

// Owns the prefixes in memory (PrefixTree) and their folder (PrefixStorage). Only the batch's thread calls it.
class PrefixCache {
 public:
  PrefixCache(const std::shared_ptr<Engine>& engine, const BatchOptions& options, RequestInbox& inbox)
      : options_(options), tree_(options.context_bytes), storage_(engine, options, tree_, inbox) {}

  PrefixTree& tree() { return tree_; }
  const PrefixTree& tree() const { return tree_; }
  PrefixStorage& storage() { return storage_; }
  const PrefixStorage& storage() const { return storage_; }

  // Returns the longest cached prefix that a request may be forked from, as its Reuse and its method allow.
  PrefixTree::Match match_prefix(const BatchJob& job) const;
  // Returns the request's context if another request's prefill of it is under way, or else null.
  PrefixPointer find_pending_context(const BatchJob& job) const;

  // Returns whether the request is kept for later ones.
  bool keeps(const BatchJob& job) const;
  // Keeps a fork of the job's session, which becomes the job's prefix. Returns false if none was added.
  bool keep_prompt(BatchJob& job);
  // Keeps a session that has ended, with its answer.
  void keep_answer(const BatchJob& job, Session session);

  // Returns the bytes of all prefixes, with what is reserved for those whose prefill or load is under way.
  std::size_t bytes_reserved() const { return tree_.bytes() + storage_.bytes_reserved(); }

 private:
  const BatchOptions& options_;
  PrefixTree tree_;
  PrefixStorage storage_;
};

}  // namespace winnow
