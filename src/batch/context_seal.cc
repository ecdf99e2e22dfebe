#include "batch/context_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr InputKind kKeyFile{"a key of saved contexts", 32};
constexpr InputKind kSealFile{"a seal of a saved context", 32};

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};

void require(bool is_done) {
  if (!is_done) throw Error(ErrorCode::kInternal, "libcrypto cannot compute HMAC-SHA-256");
}

}  // namespace

ContextSeal::ContextSeal(const std::string& folder) {
  const std::string path = folder + "/key";
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    require(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1);
    AtomicFile file(path, 0600);
    file.write({reinterpret_cast<const char*>(key_.data()), key_.size()});
    file.commit_new();  // if another process was first, its key is read below
  }
  if (lstat(path.c_str(), &info) != 0) {
    throw Error(ErrorCode::kIo, "cannot access the key " + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    throw Error(ErrorCode::kBadFile,
                "the key of saved contexts, " + path +
                    ", belongs to somebody else or is open to others: remove it and the contexts next to it");
  }
  const std::string key = read_input(path, kKeyFile);
  if (key.size() != key_.size()) {
    throw Error(ErrorCode::kBadFile, "the key of saved contexts, " + path +
                                         ", is damaged: remove it; the contexts next to it are then computed again");
  }
  std::memcpy(key_.data(), key.data(), key_.size());
}

ContextSeal::Bytes ContextSeal::digest_of(const std::string& path) const {
  const std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, nullptr, key_.data(), key_.size()));
  const std::unique_ptr<EVP_MD_CTX, Deleter<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  require(key != nullptr && context != nullptr);
  require(EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1);
  InputStream stream(path);
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::string block;
  while (!stream.ended()) {
    block.clear();
    stream.read(kBlock, block);
    require(EVP_DigestSignUpdate(context.get(), block.data(), block.size()) == 1);
  }
  Bytes digest{};
  std::size_t n_bytes = digest.size();
  require(EVP_DigestSignFinal(context.get(), digest.data(), &n_bytes) == 1 && n_bytes == digest.size());
  return digest;
}

void ContextSeal::seal(const std::string& path, const std::string& name) const {
  const Bytes digest = digest_of(path);
  write_file(seal_path(name), {reinterpret_cast<const char*>(digest.data()), digest.size()}, 0600);
}

void ContextSeal::check(const std::string& path) const {
  std::string seal;
  try {
    seal = read_input(seal_path(path), kSealFile);
  } catch (const Error&) {
    throw Error(ErrorCode::kBadFile, path + " has no seal made with this folder's key: remove it");
  }
  const Bytes digest = digest_of(path);
  // CRYPTO_memcmp takes the same time wherever they differ.
  if (seal.size() == digest.size() && CRYPTO_memcmp(seal.data(), digest.data(), digest.size()) == 0) return;
  throw Error(ErrorCode::kBadFile, path + " was not written with this folder's key, or has changed since: remove it");
}

}  // namespace winnow
