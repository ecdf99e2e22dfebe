// A seal proves that a saved context was written by a holder of the folder's key: HMAC-SHA-256 of the file, in a file
// beside it.
#pragma once

#include <array>
#include <string>

namespace winnow {

// Makes and checks seals. A checksum would only tell damage, since whoever makes a file can make its checksum, too.
// Thread-safe.
class ContextSeal {
 public:
  // Reads the key FOLDER/key; where there is none, makes one of random bytes that nobody else may read. Several
  // processes that do so at the same moment get the same one. Throws Error(kIo), and Error(kBadFile) for a key that is
  // damaged, open to others or somebody else's.
  explicit ContextSeal(const std::string& folder);

  // Writes the seal of the file `path` for the name that the file is about to get. Throws Error(kIo).
  void seal(const std::string& path, const std::string& name) const;
  // Throws Error(kBadFile) for a file that was not sealed with this key or has changed since, Error(kIo).
  void check(const std::string& path) const;

  static std::string seal_path(const std::string& path) { return path + ".seal"; }

 private:
  using Bytes = std::array<unsigned char, 32>;
  Bytes digest_of(const std::string& path) const;

  Bytes key_{};
};

}  // namespace winnow
