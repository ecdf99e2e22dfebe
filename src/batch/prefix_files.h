// Kept sequences in a folder: saved, and found again by this server after a restart and by others that use the folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch/context_seal.h"
#include "winnow/session.h"

namespace winnow {

struct SavedPrefix {
  std::string key;
  Session session;
};

// A file's name tells its key and tokens by a hash, so who looks for a sequence knows where; what is in the file is
// compared in full. Several processes may use a folder at once: a file is written and removed under a lock.
//
// Not thread-safe.
class PrefixFiles {
 public:
  // Makes the folder if it is missing. Throws Error(kIo), Error(kBadFile) for one that cannot be used. Damaged files,
  // those that others made and those that exceed `bytes_limit` are warned about and passed over.
  PrefixFiles(std::shared_ptr<Engine> engine, std::string folder, std::size_t bytes_limit,
              std::function<void(const std::string&)> on_warning);

  // Warns where it fails.
  void save(const std::string& key, const Session& session);
  void remove(const std::string& key, std::span<const Token> tokens);
  // All that there are, newest first, and at most as many as `takes` says yes to. keys_of: under which keys a session
  // with these options and tokens may have been saved.
  using KeysOf = std::function<std::vector<std::string>(const SessionOptions&, std::span<const Token>)>;
  void restore(const KeysOf& keys_of, const std::function<bool(SavedPrefix)>& takes);
  // One that this or another process saved.
  std::optional<Session> find(const std::string& key, std::span<const Token> tokens);

 private:
  std::string path_of(const std::string& key, std::span<const Token> tokens) const;
  Session load(const std::string& path) const;
  void warn(const std::string& what, const std::exception& error) const;

  std::shared_ptr<Engine> engine_;
  std::string folder_;
  std::size_t bytes_limit_;
  std::function<void(const std::string&)> on_warning_;
  ContextSeal seal_;
};

}  // namespace winnow
