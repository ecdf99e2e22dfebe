#include "batch/prefix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/fnv1a.h"
#include "winnow/error.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".context";
constexpr const char* kUnsealed = ".tmp.";  // and the process

// What a file holds beside the entries, queries and logits that a context is charged for: tokens, tables, options.
constexpr std::size_t kFileOverhead = std::size_t{1} << 20;

// Held while a file and its seal change together; it ends with the process at the latest.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX) != 0) {
      throw Error(ErrorCode::kIo, "cannot lock the folder for saved contexts, " + folder);
    }
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// Saved contexts hold users' texts and are loaded as they are: nobody else may read the folder, and nobody else's files
// are taken from it.
void check_folder(const std::string& folder, bool is_new) {
  struct stat info {};
  if (is_new && chmod(folder.c_str(), 0700) != 0) throw Error(ErrorCode::kIo, "cannot close " + folder + " to others");
  if (stat(folder.c_str(), &info) != 0) throw Error(ErrorCode::kIo, "cannot look at the folder " + folder);
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    throw Error(ErrorCode::kIo, "the folder for saved contexts, " + folder +
                                    ", is open to others, and the files in it hold what users wrote: chmod 700 it, or "
                                    "name another");
  }
}

void check_file(const std::string& path, std::size_t bytes_limit) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) throw Error(ErrorCode::kBadFile, path + " is no file");
  if (info.st_uid != geteuid()) throw Error(ErrorCode::kBadFile, path + " belongs to another user: remove it");
  if (static_cast<std::size_t>(info.st_size) > bytes_limit + kFileOverhead) {
    throw Error(ErrorCode::kOutOfMemory, path + " exceeds the memory for kept contexts: raise it or remove the file");
  }
}

// Makes the folder if it is missing.
std::string usable_folder(const std::string& folder) {
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    throw Error(ErrorCode::kIo, "the folder for saved contexts, " + folder + ", cannot be made: " + error.message());
  }
  check_folder(folder, is_new);
  return folder;
}

}  // namespace

PrefixFiles::PrefixFiles(std::shared_ptr<Engine> engine, std::string folder, std::size_t bytes_limit,
                         std::function<void(const std::string&)> on_warning)
    : engine_(std::move(engine)),
      folder_(usable_folder(folder)),
      bytes_limit_(bytes_limit),
      on_warning_(std::move(on_warning)),
      seal_(folder_) {}

std::string PrefixFiles::path_of(const std::string& key, std::span<const Token> tokens) const {
  Fnv1a hash;
  hash.add(key).add(tokens.data(), tokens.size() * sizeof(Token));
  return (fs::path(folder_) / (hex_text(hash.value()) + kSuffix)).string();
}

void PrefixFiles::warn(const std::string& what, const std::exception& error) const {
  if (on_warning_) on_warning_(what + error.what());
}

void PrefixFiles::save(const std::string& key, const Session& session) {
  const std::string path = path_of(key, session.tokens());
  // Its seal is there before the file has its name: who is killed in between leaves a seal of nothing.
  const std::string unsealed = path + kUnsealed + std::to_string(getpid());
  try {
    session.save(unsealed);
    const FolderLock lock(folder_);
    seal_.seal(unsealed, path);
    fs::rename(unsealed, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(unsealed, ignored);
    warn("a context could not be saved: ", error);
  }
}

void PrefixFiles::remove(const std::string& key, std::span<const Token> tokens) {
  const std::string path = path_of(key, tokens);
  std::error_code ignored;
  fs::remove(path, ignored);
  fs::remove(ContextSeal::seal_path(path), ignored);
}

Session PrefixFiles::load(const std::string& path) const {
  check_file(path, bytes_limit_);
  const FolderLock lock(folder_);
  seal_.check(path);
  return engine_->load_session(path);
}

std::optional<Session> PrefixFiles::find(const std::string& key, std::span<const Token> tokens) {
  const std::string path = path_of(key, tokens);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  try {
    Session session = load(path);
    if (std::ranges::equal(session.tokens(), tokens)) return session;
  } catch (const std::exception& error) {
    warn("a saved context was passed over: ", error);
  }
  return std::nullopt;
}

void PrefixFiles::restore(const KeysOf& keys_of, const std::function<bool(SavedPrefix)>& takes) {
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSuffix)) {
      files.emplace_back(entry.last_write_time(ignored), entry.path().string());
    } else if (name.find(std::string(kSuffix) + kUnsealed) != std::string::npos) {
      const std::string process = name.substr(name.rfind('.') + 1);
      if (kill(std::atoi(process.c_str()), 0) != 0) fs::remove(entry.path(), ignored);  // of a save that was killed
    }
  }
  std::sort(files.begin(), files.end(), std::greater<>());
  for (const auto& [time, file] : files) {
    const std::string& path = file;  // clang 14 lets no lambda take a part of a binding
    try {
      Session session = load(path);
      const std::vector<std::string> keys = keys_of(session.options(), session.tokens());
      const auto key = std::find_if(keys.begin(), keys.end(), [&](const std::string& candidate) {
        return fs::path(path_of(candidate, session.tokens())).filename() == fs::path(path).filename();
      });
      if (key == keys.end()) {
        throw Error(ErrorCode::kBadFile, path + " holds another context than its name says: remove it");
      }
      if (!takes({.key = *key, .session = std::move(session)})) {
        throw Error(ErrorCode::kOutOfMemory,
                    path + " exceeds the memory for kept contexts: raise it or remove the file");
      }
    } catch (const std::exception& error) {
      warn("a saved context was passed over: ", error);
    }
  }
}

}  // namespace winnow
