// Kept sequences in a folder: saved, and found again by this server after a restart and by others that use the folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
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

// A file that, by its name, holds the first n_tokens tokens of what was looked for.
struct SavedBeginning {
  std::string path;
  std::int32_t n_tokens = 0;
  std::size_t bytes = 0;
};

// A file's name tells its key and tokens by a hash, and how many they are, so who looks for a sequence or its beginning
// knows where; what is in the file is compared in full. Several processes may use a folder at once, on several
// machines: a file is written, removed and read under a lock. Files outlive what is kept in memory; the folder has a
// limit of its own, and a file's time is that of its last use.
//
// Thread-safe; what it warns about it warns about on the caller's thread.
class PrefixFiles {
 public:
  struct Limits {
    std::size_t one_bytes = 0;     // of a context: what memory has room for
    std::size_t folder_bytes = 0;  // of all files, whoever wrote them
  };
  // Makes the folder if it is missing. Throws Error(kIo), Error(kBadFile) for one that cannot be used.
  PrefixFiles(std::shared_ptr<Engine> engine, std::string folder, const Limits& limits,
              std::function<void(const std::string&)> on_warning);

  // Those that were not used for longest make room. Nobody may change the session meanwhile, but fork it. Throws
  // Error(kIo).
  void save(const std::string& key, const Session& session) const;
  // Where a sequence is saved.
  std::string path_of(const std::string& key, std::span<const Token> tokens) const;
  // It was used. False: it is not there any more, somebody else has needed the room.
  static bool touch(const std::string& path);
  // Those that were used last come first, until `takes` says no. Damaged files, those that others made and those that
  // are too large are warned about and passed over. keys_of: under which keys a session with these options and tokens
  // may have been saved.
  using KeysOf = std::function<std::vector<std::string>(const SessionOptions&, std::span<const Token>)>;
  void restore(const KeysOf& keys_of, const std::function<bool(SavedPrefix)>& takes) const;
  // What this or another process saved of what `tokens` begin with, n_least tokens of it at least; the longest first.
  std::vector<SavedBeginning> find(const std::string& key, std::span<const Token> tokens, std::size_t n_least) const;
  // One of these, which has to hold `tokens`. It was used then. Throws Error(kBadFile) for one that is damaged or
  // somebody else's, Error(kIo), Error(kOutOfMemory), and Error(kCancelled) soon after is_wanted has become false.
  Session load(const std::string& path, std::span<const Token> tokens, const std::atomic<bool>& is_wanted) const;
  // The sentence to warn with where that fails.
  static std::string passed_over(const std::exception& error);

 private:
  struct SavedFile {
    std::string path;
    std::filesystem::file_time_type used;
    std::size_t bytes = 0;
  };
  // Those used last come first. Removes what killed saves have left.
  std::vector<SavedFile> saved_files() const;
  void trim() const;
  Session load(const std::string& path, const std::atomic<bool>& is_wanted) const;

  std::shared_ptr<Engine> engine_;
  std::string folder_;
  Limits limits_;
  std::function<void(const std::string&)> on_warning_;
  ContextSeal seal_;
};

}  // namespace winnow
