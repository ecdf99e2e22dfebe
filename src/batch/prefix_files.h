// Saves cached prefixes in a folder, where this server finds them again after a restart, as do others that share it.
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

// A prefix that was loaded from its file.
struct RestoredPrefix {
  std::string key;
  Session session;
};

// A file that, by its name, holds the first n_tokens of the tokens that were searched for.
struct SavedPrefix {
  std::string path;
  std::int32_t n_tokens = 0;
  std::size_t bytes = 0;
};

// A folder of saved prefixes. A file's name contains a hash of its key and tokens and their number, so that a search
// for a sequence and its prefixes reads names only; the tokens in the file are compared in full once it is loaded.
// Several processes on several machines may use a folder at once: files are written, removed and read under a lock.
// Files outlive the prefixes in memory. The folder has a limit of its own, and a file's modification time is that of
// its last use.
//
// Thread-safe. Warnings are given on the caller's thread.
class PrefixFiles {
 public:
  struct Limits {
    std::size_t one_bytes = 0;     // most bytes of one prefix: more do not fit into memory
    std::size_t folder_bytes = 0;  // most bytes of all files, whichever process wrote them
  };
  // Makes the folder if it is missing. Throws Error(kIo) or Error(kBadFile) for one that cannot be used.
  PrefixFiles(std::shared_ptr<Engine> engine, std::string folder, const Limits& limits,
              std::function<void(const std::string&)> on_warning);

  // Writes the session's file, then removes the least recently used files if the folder exceeds its limit. Other
  // threads may fork the session meanwhile, but not change it. Throws Error(kIo).
  void save(const std::string& key, const Session& session) const;
  // Returns the path of the file that a sequence is saved in.
  std::string path_of(const std::string& key, std::span<const Token> tokens) const;
  // Sets the file's time of last use to now. Returns false if the file is gone, since another server needed the room.
  static bool touch(const std::string& path);
  // Loads the files, the most recently used first, until `takes` returns false. Files that are damaged, too large or
  // another user's are warned about and passed over. `keys_of` returns the keys under which a session with these
  // options and tokens may have been saved.
  using KeysOf = std::function<std::vector<std::string>(const SessionOptions&, std::span<const Token>)>;
  void restore(const KeysOf& keys_of, const std::function<bool(RestoredPrefix)>& takes) const;
  // Returns the files with prefixes of `tokens` that have n_least tokens or more, the longest first.
  std::vector<SavedPrefix> find(const std::string& key, std::span<const Token> tokens, std::size_t n_least) const;
  // Loads and touches a file that find() returned, which must hold `tokens`. Throws Error(kBadFile) if it is damaged,
  // another user's or holds other tokens, Error(kIo), Error(kOutOfMemory), and Error(kCancelled) soon after is_wanted
  // has become false.
  Session load(const std::string& path, std::span<const Token> tokens, const std::atomic<bool>& is_wanted) const;
  // Returns the warning for a load that has failed.
  static std::string passed_over(const std::exception& error);

 private:
  struct SavedFile {
    std::string path;
    std::filesystem::file_time_type used;
    std::size_t bytes = 0;
  };
  // Returns the files, the most recently used first. Removes the leftovers of saves that were killed.
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
