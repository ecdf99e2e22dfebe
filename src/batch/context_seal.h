// Seals of saved contexts. A seal proves that a file was written by a holder of the folder's key: it is the file's
// HMAC-SHA-256, stored in a file next to it.
#pragma once

#include <array>
#include <string>

namespace winnow {

// Makes and checks seals with a folder's key. A checksum would only detect damage, since anybody who can write a file
// can also write its checksum. Thread-safe.
class ContextSeal {
 public:
  // Reads the key FOLDER/key; if there is none, creates one of random bytes that only its owner may read. Processes
  // that do so at the same time get the same key. Throws Error(kIo), and Error(kBadFile) for a key that is damaged,
  // open to others or owned by another user.
  explicit ContextSeal(const std::string& folder);

  // Writes the seal of the file `path`, which is about to be renamed to `name`. Throws Error(kIo).
  void seal(const std::string& path, const std::string& name) const;
  // Throws Error(kBadFile) if the file was not sealed with this key or has changed since, and Error(kIo).
  void check(const std::string& path) const;

  static std::string seal_path(const std::string& path) { return path + ".seal"; }

 private:
  using Bytes = std::array<unsigned char, 32>;
  Bytes digest_of(const std::string& path) const;

  Bytes key_{};
};

}  // namespace winnow
