#include "engine/session_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/fnv1a.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// magic, version, bytes of the body, FNV-1a of the body; then the body.
constexpr char kMagic[8] = {'w', 'i', 'n', 'n', 'o', 'w', 'K', 'V'};
constexpr std::uint32_t kVersion = 1;

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t body_bytes;
  std::uint64_t checksum;
};

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
void put_array(std::ostream& out, const std::vector<T>& values) {
  put(out, static_cast<std::uint64_t>(values.size()));
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void put_text(std::ostream& out, const std::string& text) {
  put_array(out, std::vector<char>(text.begin(), text.end()));
}

// Reads with every count checked against what is left.
class Reader {
 public:
  Reader(std::istream& in, std::size_t bytes, const std::string& path) : in_(in), left_(bytes), path_(path) {}

  template <class T>
  T get() {
    T value{};
    take(sizeof(T));
    in_.read(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }

  template <class T>
  std::vector<T> get_array(std::size_t most) {
    const auto n = get<std::uint64_t>();
    if (n > most || n > left_ / sizeof(T)) damaged();
    std::vector<T> values(static_cast<std::size_t>(n));
    take(values.size() * sizeof(T));
    in_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return values;
  }

  std::string get_text() {
    const auto chars = get_array<char>(1 << 20);
    return {chars.begin(), chars.end()};
  }

  [[noreturn]] void damaged() const {
    throw Error(ErrorCode::kBadFile, "the session file '" + path_ + "' is damaged: prefill the prompt again");
  }

 private:
  void take(std::size_t n) {
    if (n > left_) damaged();
    left_ -= n;
  }
  std::istream& in_;
  std::size_t left_;
  const std::string& path_;
};

[[noreturn]] void throw_io(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::kIo, what + " '" + path + "': " + std::strerror(errno));
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_io("cannot write the session file", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

void save_session(const Session::Impl& session, const std::string& path) {
  std::ostringstream body_stream(std::ios::binary);
  put(body_stream, session.model().info.fingerprint);
  put(body_stream, session.options.key_type);
  put(body_stream, session.options.value_type);
  put(body_stream, session.options.n_ctx);
  put(body_stream, session.options.prefill_chunk);
  put(body_stream, static_cast<std::int32_t>(session.options.decode_cut));
  put(body_stream, session.options.cut_every);
  put_text(body_stream, session.options.eviction.text());
  put_text(body_stream, session.options.budget ? session.options.budget->text() : "");
  put(body_stream, session.statistics.prompt_tokens);
  put(body_stream, session.statistics.decoded_tokens);
  put(body_stream, session.total);
  put(body_stream, session.decoded_since_cut);
  put_array(body_stream, session.head_budgets);
  put_array(body_stream, session.tokens);
  put_array(body_stream, session.logits);
  put_array(body_stream, session.evidence.window());
  put_array(body_stream, session.evidence.moments());
  session.cache.write(body_stream);
  const std::string body = std::move(body_stream).str();

  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.body_bytes = body.size();
  header.checksum = fnv1a(body);

  // The name is unique to this process, so that two savers of one path do not write into each other's file.
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw_io("cannot create the session file", temporary);
  try {
    write_all(fd, {reinterpret_cast<const char*>(&header), sizeof(header)}, temporary);
    write_all(fd, body, temporary);
    if (fsync(fd) != 0) throw_io("cannot write the session file", temporary);
  } catch (...) {
    close(fd);
    unlink(temporary.c_str());
    throw;
  }
  close(fd);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    throw_io("cannot write the session file", path);
  }
}

std::unique_ptr<Session::Impl> load_session(std::shared_ptr<Engine> engine, const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                "cannot open the session file '" + path + "': " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::kBadFile, "'" + path + "' is not a session file");
  std::ifstream in(path, std::ios::binary);
  FileHeader header{};
  in.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!in || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    throw Error(ErrorCode::kBadFile, "'" + path + "' is not a session file of winnow");
  }
  if (header.version != kVersion) {
    throw Error(ErrorCode::kBadFile, "the session file '" + path + "' has the format version " +
                                         std::to_string(header.version) + ", this winnow reads " +
                                         std::to_string(kVersion) + ": prefill the prompt again");
  }
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  if (header.body_bytes != file_bytes - sizeof(header)) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' is truncated or damaged: prefill the prompt again");
  }
  std::string body(static_cast<std::size_t>(header.body_bytes), '\0');
  in.read(body.data(), static_cast<std::streamsize>(body.size()));
  if (!in || fnv1a(body) != header.checksum) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' is damaged (its checksum does not match): prefill the prompt again");
  }

  std::istringstream body_stream(body, std::ios::binary);
  Reader reader(body_stream, body.size(), path);
  const Model::Impl& model = engine->impl().model->impl();
  if (reader.get<std::uint64_t>() != model.info.fingerprint) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' was saved with another model than '" + model.file.path() + "'");
  }
  SessionOptions options;
  options.key_type = reader.get<EntryType>();
  options.value_type = reader.get<EntryType>();
  for (const EntryType type : {options.key_type, options.value_type}) {
    if (type > EntryType::kR3) reader.damaged();
  }
  options.n_ctx = reader.get<std::int32_t>();
  options.prefill_chunk = reader.get<std::int32_t>();
  const auto decode_cut = reader.get<std::int32_t>();
  if (decode_cut < 0 || decode_cut > static_cast<std::int32_t>(SessionOptions::DecodeCut::kOwn)) reader.damaged();
  options.decode_cut = static_cast<SessionOptions::DecodeCut>(decode_cut);
  options.cut_every = reader.get<std::int32_t>();
  options.eviction = EvictionOptions::parse(reader.get_text());
  if (const std::string budget = reader.get_text(); !budget.empty()) options.budget = Budget::parse(budget);

  auto session = std::make_unique<Session::Impl>(std::move(engine), options);
  session->statistics.prompt_tokens = reader.get<std::int64_t>();
  session->statistics.decoded_tokens = reader.get<std::int64_t>();
  session->total = reader.get<std::int64_t>();
  session->decoded_since_cut = reader.get<std::int32_t>();
  const CacheShape& shape = session->cache.shape();
  const auto n_heads = static_cast<std::size_t>(shape.n_layer) * static_cast<std::size_t>(shape.n_kv_head);
  session->head_budgets = reader.get_array<std::int32_t>(n_heads);
  if (!session->head_budgets.empty() && session->head_budgets.size() != n_heads) reader.damaged();
  session->tokens = reader.get_array<Token>(static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
  session->logits = reader.get_array<float>(static_cast<std::size_t>(model.hparams.n_vocab));
  const auto window = reader.get_array<float>(session->evidence.window().size());
  if (window.size() != session->evidence.window().size()) reader.damaged();
  if (!session->logits.empty() && session->logits.size() != static_cast<std::size_t>(model.hparams.n_vocab)) {
    reader.damaged();
  }
  session->evidence.window() = window;
  if (!session->evidence.set_moments(reader.get_array<double>(body.size()))) reader.damaged();
  session->cache.restore(body_stream);
  return session;
}

}  // namespace winnow
