#include "batch/prefix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <system_error>

#include "base/fnv1a.h"
#include "engine/session_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".context";
constexpr const char* kUnsealed = ".tmp.";  // a number follows that no other save has
// A save that has not ended after this time counts as killed.
constexpr std::chrono::hours kKilled{1};

// A file contains tokens, tables and options besides the entries, queries and logits that a context is charged for.
constexpr std::size_t kFileOverhead = std::size_t{1} << 20;

// The folder's lock, held while a file and its seal change together (LOCK_EX) or are read (LOCK_SH). It ends with the
// process at the latest.
class FolderLock {
 public:
  FolderLock(const std::string& folder, int kind)
      : descriptor_(open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0 || flock(descriptor_, kind) != 0) {
      throw Error(ErrorCode::kIo, "cannot lock the folder for saved contexts, " + folder + ": " + std::strerror(errno));
    }
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// Throws Error(kIo) unless the folder belongs to this user and is closed to others. Saved contexts contain users'
// texts, which nobody else may read, and are loaded as they are, so nobody else's files may be among them.
void check_folder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) {
    throw Error(ErrorCode::kIo, "cannot access the folder " + folder + ": " + std::strerror(errno));
  }
  if (info.st_uid != geteuid()) {
    throw Error(ErrorCode::kIo, "the folder for saved contexts, " + folder + ", belongs to another user: name another");
  }
  if ((info.st_mode & 077) != 0) {
    throw Error(ErrorCode::kIo, "the folder for saved contexts, " + folder +
                                    ", is open to others, and the files in it hold what users wrote: chmod 700 it, or "
                                    "name another");
  }
}

void check_file(const std::string& path, std::size_t bytes_limit) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kBadFile, path + " is not a regular file");
  }
  if (info.st_uid != geteuid()) throw Error(ErrorCode::kBadFile, path + " belongs to another user: remove it");
  if (static_cast<std::size_t>(info.st_size) > bytes_limit + kFileOverhead) {
    throw Error(ErrorCode::kOutOfMemory,
                path + " is larger than the memory for kept contexts: raise that memory or remove the file");
  }
}

// Creates the folder if it is missing. It is closed to others from the first moment on, since servers that start
// together all check it.
std::string usable_folder(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "contexts/"
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && !error) error = {errno, std::generic_category()};
  if (!fs::is_directory(path)) {
    throw Error(ErrorCode::kIo, "cannot make the folder for saved contexts, " + folder + ": " + error.message());
  }
  check_folder(folder);
  return folder;
}

// Returns a file's name; `hash` is that of its key and tokens.
std::string file_name(const Fnv1a& hash, std::size_t n_tokens) {
  return hex_text(hash.value()) + "-" + std::to_string(n_tokens) + kSuffix;
}

[[noreturn]] void refuse_name(const std::string& path) {
  throw Error(ErrorCode::kBadFile, path + " holds a different context than its name says: remove it");
}

// Returns a random number, since servers on other machines or in containers may have the same process number.
std::string random_number() {
  std::random_device random;
  return hex_text(std::uint64_t{random()} << 32 | random());
}

}  // namespace

PrefixFiles::PrefixFiles(std::shared_ptr<Engine> engine, std::string folder, const Limits& limits,
                         std::function<void(const std::string&)> on_warning)
    : engine_(std::move(engine)),
      folder_(usable_folder(folder)),
      limits_(limits),
      on_warning_(std::move(on_warning)),
      seal_(folder_) {}

std::string PrefixFiles::passed_over(const std::exception& error) {
  return std::string("a saved context was skipped: ") + error.what();
}

std::string PrefixFiles::path_of(const std::string& key, std::span<const Token> tokens) const {
  Fnv1a hash;
  hash.add(key).add(tokens.data(), tokens.size() * sizeof(Token));
  return (fs::path(folder_) / file_name(hash, tokens.size())).string();
}

void PrefixFiles::save(const std::string& key, const Session& session) const {
  const std::string path = path_of(key, session.tokens());
  // The seal is written before the file gets its name, so a process killed in between leaves a seal without a file.
  const std::string unsealed = path + kUnsealed + random_number();
  try {
    // Session::save waits for the steps of other sessions, which is needed only if several ranks take part.
    if (engine_->impl().pipeline.n_ranks() > 1) {
      session.save(unsealed);
    } else {
      save_session(session.impl(), unsealed);
    }
    const FolderLock lock(folder_, LOCK_EX);
    seal_.seal(unsealed, path);
    fs::rename(unsealed, path);
    trim();
  } catch (...) {
    std::error_code ignored;
    fs::remove(unsealed, ignored);
    throw;
  }
}

std::vector<PrefixFiles::SavedFile> PrefixFiles::saved_files() const {
  std::vector<SavedFile> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSuffix)) {
      std::error_code gone;  // another server has removed it by now
      const SavedFile file{
          .path = entry.path().string(), .used = entry.last_write_time(gone), .bytes = entry.file_size(gone)};
      if (!gone) files.push_back(file);
    } else if (name.find(std::string(kSuffix) + kUnsealed) != std::string::npos) {
      const fs::file_time_type written = entry.last_write_time(ignored);
      if (!ignored && written < fs::file_time_type::clock::now() - kKilled) fs::remove(entry.path(), ignored);
    }
  }
  std::sort(files.begin(), files.end(), [](const SavedFile& a, const SavedFile& b) { return a.used > b.used; });
  return files;
}

void PrefixFiles::trim() const {
  const std::vector<SavedFile> files = saved_files();
  std::size_t sum = 0;
  for (const SavedFile& file : files) {
    sum += file.bytes;
    if (sum <= limits_.folder_bytes || &file == &files.front()) continue;  // the newest stays, whatever its size
    std::error_code ignored;
    fs::remove(file.path, ignored);
    fs::remove(ContextSeal::seal_path(file.path), ignored);
  }
}

bool PrefixFiles::touch(const std::string& path) {
  return utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0 || errno != ENOENT;
}

Session PrefixFiles::load(const std::string& path, const std::atomic<bool>& is_wanted) const {
  const auto require_wanted = [&] {
    if (!is_wanted) throw Error(ErrorCode::kCancelled, path + " is not needed any more");
  };
  check_file(path, limits_.one_bytes);
  const FolderLock lock(folder_, LOCK_SH);
  require_wanted();
  seal_.check(path);
  require_wanted();
  return engine_->load_session(path);
}

std::vector<SavedPrefix> PrefixFiles::find(const std::string& key, std::span<const Token> tokens,
                                           std::size_t n_least) const {
  std::map<std::string, std::size_t> bytes;  // by name
  std::set<std::size_t> lengths;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::size_t dash = name.find('-');
    if (dash == std::string::npos || !name.ends_with(kSuffix)) continue;
    const std::size_t n = std::strtoull(name.c_str() + dash + 1, nullptr, 10);
    if (n < n_least || n > tokens.size()) continue;
    std::error_code gone;  // another server has removed it by now
    bytes[name] = entry.file_size(gone);
    if (!gone) lengths.insert(n);
  }
  std::vector<SavedPrefix> found;
  Fnv1a hash;
  hash.add(key);
  for (std::size_t n_before = 0; const std::size_t n : lengths) {
    hash.add(tokens.data() + n_before, (n - n_before) * sizeof(Token));
    n_before = n;
    const auto file = bytes.find(file_name(hash, n));
    if (file == bytes.end()) continue;
    found.push_back({.path = (fs::path(folder_) / file->first).string(),
                     .n_tokens = static_cast<std::int32_t>(n),
                     .bytes = file->second});
  }
  std::reverse(found.begin(), found.end());
  return found;
}

Session PrefixFiles::load(const std::string& path, std::span<const Token> tokens,
                          const std::atomic<bool>& is_wanted) const {
  Session session = load(path, is_wanted);
  if (!std::ranges::equal(session.tokens(), tokens)) refuse_name(path);
  touch(path);
  return session;
}

void PrefixFiles::restore(const KeysOf& keys_of, const std::function<bool(RestoredPrefix)>& takes) const {
  const std::atomic<bool> is_wanted = true;
  for (const SavedFile& file : saved_files()) {
    const std::string& path = file.path;
    try {
      Session session = load(path, is_wanted);
      const std::vector<std::string> keys = keys_of(session.options(), session.tokens());
      const auto key = std::find_if(keys.begin(), keys.end(), [&](const std::string& candidate) {
        return fs::path(path_of(candidate, session.tokens())).filename() == fs::path(path).filename();
      });
      if (key == keys.end()) refuse_name(path);
      if (!takes({.key = *key, .session = std::move(session)})) return;
    } catch (const std::exception& error) {
      if (on_warning_) on_warning_(passed_over(error));
    }
  }
}

}  // namespace winnow
