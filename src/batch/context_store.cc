#include "batch/context_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace

std::string context_key(const SessionOptions& options) {
  return std::string(entry_type_name(options.key_type)) + " " + std::string(entry_type_name(options.value_type)) + " " +
         options.eviction.text() + " " + (options.budget ? options.budget->text() : "all") + " " +
         std::to_string(options.n_ctx) + " " + std::to_string(options.prefill_chunk) + " " +
         std::to_string(static_cast<int>(options.decode_cut)) + " " + std::to_string(options.cut_every);
}

ContextStore::ContextStore(std::shared_ptr<Engine> engine, std::size_t bytes_limit, std::string folder,
                           std::function<void(const std::string&)> on_warning)
    : engine_(std::move(engine)),
      bytes_limit_(bytes_limit),
      folder_(std::move(folder)),
      on_warning_(std::move(on_warning)) {
  if (folder_.empty()) return;
  std::error_code error;
  const bool is_new = fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_)) {
    throw Error(ErrorCode::kIo, "the folder for saved contexts, " + folder_ + ", cannot be made: " + error.message());
  }
  check_folder(folder_, is_new);
  seal_.emplace(folder_);
}

ContextPointer ContextStore::find(const std::string& key, std::span<const Token> tokens) const {
  const auto found = std::find_if(contexts_.begin(), contexts_.end(), [&](const ContextPointer& context) {
    return std::equal(tokens.begin(), tokens.end(), context->tokens.begin(), context->tokens.end()) &&
           context->key == key;
  });
  return found == contexts_.end() ? nullptr : *found;
}

ContextPointer ContextStore::add(const SessionOptions& options, std::vector<Token> tokens, std::size_t bytes,
                                 bool is_kept) {
  Session session = engine_->open(options);
  contexts_.push_back(std::make_shared<BatchContext>(BatchContext{.id = next_id_++,
                                                                  .key = context_key(options),
                                                                  .tokens = std::move(tokens),
                                                                  .session = std::move(session),
                                                                  .is_kept = is_kept && bytes_limit_ > 0,
                                                                  .bytes = bytes}));
  return contexts_.back();
}

void ContextStore::use(BatchContext& context) {
  ++context.n_users;
  context.last_use = ++n_uses_;
}

void ContextStore::release(BatchContext& context) {
  --context.n_users;
  if (context.n_users == 0 && !(context.is_kept && context.is_ready)) remove(context);
  trim();
}

void ContextStore::set_ready(BatchContext& context) {
  context.is_ready = true;
  context.ready_at = std::chrono::steady_clock::now();
  context.statistics = context.session.statistics();
  context.bytes = context.statistics.bytes_in_pages + state_bytes(engine_->model()->info(), context.session.options());
  trim();
}

void ContextStore::remove(const BatchContext& context) {
  if (context.is_saved) {
    std::error_code ignored;
    fs::remove(path_of(context), ignored);
    fs::remove(ContextSeal::seal_path(path_of(context)), ignored);
  }
  contexts_.remove_if([&](const ContextPointer& other) { return other.get() == &context; });
}

bool ContextStore::remove_one(const BatchContext* spared) {
  const BatchContext* oldest = nullptr;
  for (const ContextPointer& context : contexts_) {
    if (context->n_users > 0 || context.get() == spared) continue;
    if (oldest == nullptr || context->last_use < oldest->last_use) oldest = context.get();
  }
  if (oldest == nullptr) return false;
  remove(*oldest);
  ++n_removed_;
  return true;
}

void ContextStore::trim() {
  while (bytes_kept() > bytes_limit_ && remove_one(nullptr)) {
  }
}

std::size_t ContextStore::bytes() const {
  std::size_t sum = 0;
  for (const ContextPointer& context : contexts_) sum += context->bytes;
  return sum;
}

std::size_t ContextStore::bytes_kept() const {
  std::size_t sum = 0;
  for (const ContextPointer& context : contexts_) sum += context->is_ready && context->is_kept ? context->bytes : 0;
  return sum;
}

std::size_t ContextStore::bytes_in_pages() const {
  std::size_t sum = 0;
  for (const ContextPointer& context : contexts_) {
    sum += context->is_ready && context->is_kept ? context->statistics.bytes_in_pages : 0;
  }
  return sum;
}

std::string ContextStore::path_of(const BatchContext& context) const {
  // A name only: what is in the files is compared in full.
  Fnv1a hash;
  hash.add(context.key).add(context.tokens.data(), context.tokens.size() * sizeof(Token));
  return (fs::path(folder_) / (hex_text(hash.value()) + kSuffix)).string();
}

void ContextStore::save(const BatchContext& context) const {
  const std::string path = path_of(context);
  // Its seal is there before the file has its name: who is killed in between leaves a seal of nothing.
  const std::string unsealed = path + kUnsealed + std::to_string(getpid());
  try {
    context.session.save(unsealed);
    seal_->seal(unsealed, path);
    fs::rename(unsealed, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unsealed, ignored);
    throw;
  }
}

bool ContextStore::save_one(std::chrono::steady_clock::duration age) {
  if (folder_.empty()) return false;
  const auto latest = std::chrono::steady_clock::now() - age;
  for (const ContextPointer& context : contexts_) {
    if (!context->is_ready || !context->is_kept || context->is_saved || context->ready_at > latest) continue;
    context->is_saved = true;  // also where it fails: a full disk is not asked again and again
    try {
      save(*context);
    } catch (const std::exception& error) {
      if (on_warning_) on_warning_(std::string("a context could not be saved: ") + error.what());
    }
    return true;
  }
  return false;
}

void ContextStore::restore_file(const std::string& path) {
  check_file(path, bytes_limit_);
  seal_->check(path);
  Session session = engine_->load_session(path);
  const std::string key = context_key(session.options());
  std::vector<Token> tokens(session.tokens().begin(), session.tokens().end());
  const SessionStatistics statistics = session.statistics();
  const std::size_t n_bytes = statistics.bytes_in_pages + state_bytes(engine_->model()->info(), session.options());
  const auto context = std::make_shared<BatchContext>(BatchContext{.id = next_id_,
                                                                   .key = key,
                                                                   .tokens = std::move(tokens),
                                                                   .session = std::move(session),
                                                                   .is_ready = true,
                                                                   .is_kept = true,
                                                                   .bytes = n_bytes,
                                                                   .statistics = statistics,
                                                                   .is_saved = true});
  if (path_of(*context) != fs::path(path).lexically_normal().string() && path_of(*context) != path) {
    throw Error(ErrorCode::kBadFile, path + " holds another context than its name says: remove it");
  }
  if (bytes() + context->bytes > bytes_limit_) {
    throw Error(ErrorCode::kOutOfMemory, path + " exceeds the memory for kept contexts: raise it or remove the file");
  }
  ++next_id_;
  contexts_.push_back(context);
}

void ContextStore::restore() {
  if (folder_.empty()) return;
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSuffix)) {
      files.emplace_back(entry.last_write_time(ignored), entry.path().string());
    } else if (name.find(std::string(kSuffix) + kUnsealed) != std::string::npos) {
      fs::remove(entry.path(), ignored);  // of a save that was killed
    }
  }
  std::sort(files.begin(), files.end(), std::greater<>());
  for (const auto& [time, path] : files) {
    try {
      restore_file(path);
    } catch (const std::exception& error) {
      if (on_warning_) on_warning_(std::string("a saved context was passed over: ") + error.what());
    }
  }
  // The newest was used last.
  for (auto context = contexts_.rbegin(); context != contexts_.rend(); ++context) (*context)->last_use = ++n_uses_;
}

}  // namespace winnow
