// winnow serve: an OpenAI-compatible server.

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/process_memory.h"
#include "base/stopwatch.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranks.h"
#include "cli/sampling_flags.h"
#include "cli/text_file.h"
#include "gguf/split_name.h"
#include "mpi/mpi_link.h"
#include "server/service.h"
#include "winnow/batch.h"
#include "winnow/embedding.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

using server::Json;

struct ServeFlags {
  ModelFlags model;
  std::string alias;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<std::string> api_keys;
  std::optional<std::string> api_key_file;
  std::string cors_origin;
  std::vector<std::string> allowed_hosts;
  int n_parallel = 8, n_queued = 64;
  int max_tokens = 1024;
  int min_kv_tokens = 256;
  std::optional<std::string> context_bytes;
  std::string cache_dir;
  std::optional<std::string> cache_dir_bytes;
  std::string max_body = "16MiB";
  int max_connections = 128;
  int timeout_s = 600, drain_s = 0, grace_s = 30, ping_s = 30;
  SamplingFlags sampling;
  CacheFlags cache;
  std::optional<std::string> pooling;
};

constexpr const char* kServeExamples =
    "  winnow serve -m model.gguf\n"
    "  winnow serve -m model.gguf --kv-budget 5%bytes --cache-dir contexts\n"
    "  winnow serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt\n";

bool parse_flags(const Arguments& arguments, ServeFlags& flags) {
  CommandLine line("winnow serve", "[flags]",
                   "Serves a model over the APIs of OpenAI (/v1/chat/completions, /v1/completions), Anthropic "
                   "(/v1/messages) and ollama (/api/chat, /api/generate), with a chat page at /. The KV cache and "
                   "generation flags are defaults, for requests that set nothing else.",
                   kServeExamples);
  line.group("Server");
  line.text("--host", "ADDRESS", flags.host, "address to listen on (default: 127.0.0.1, this machine only)");
  line.integer("--port", flags.port, 0, "port to listen on; 0: any free one (default: 8080)");
  line.texts("--api-key", "KEY", ',', flags.api_keys, "API key that requests must send; separate several with commas");
  line.text("--api-key-file", "FILE", flags.api_key_file, "read API keys from a file, one per line");
  line.texts("--allow-host", "NAME", ',', flags.allowed_hosts,
             "host names besides localhost to accept when no key is set, e.g. host.docker.internal or *.local; "
             "separate several with commas (default: none)");
  line.text("--cors-origin", "ORIGIN", flags.cors_origin,
            "sites whose pages may send requests, e.g. https://example.org,app://*; *: all");
  line.integer("--parallel", flags.n_parallel, 1, "maximum number of answers at a time (default: 8)");
  line.integer("--queue", flags.n_queued, 0,
               "maximum number of waiting requests; further ones get status 503 (default: 64)");
  line.integer("--timeout", flags.timeout_s, 1, "time limit of a request in seconds (default: 600)");
  line.integer("--sse-ping-interval", flags.ping_s, -1,
               "seconds of silence after which a stream sends a keep-alive; -1: never (default: 30)");
  line.integer("--drain", flags.drain_s, 0,
               "seconds after SIGTERM in which /health returns 503 but requests are still accepted, for a proxy to "
               "notice (default: 0)");
  line.integer("--grace", flags.grace_s, 0, "seconds that running answers then have to finish (default: 30)");
  line.text("--max-body", "SIZE", flags.max_body, "maximum size of a request body (default: 16MiB)");
  line.integer("--max-connections", flags.max_connections, 1, "maximum number of connections (default: 128)");
  line.group("Model");
  add_model_flag(line, flags.model);
  add_template_flags(line, flags.model);
  line.text("-a,--alias", "NAME", flags.alias, "name of the model in the API (default: that of the file)");
  add_engine_flags(line, flags.model);
  add_pipeline_flag(line, flags.model);
  add_device_flags(line, flags.model);
  line.text("--pooling", "HOW", flags.pooling,
            "pooling of embeddings: mean, cls or last (default: the model file's, else mean)");
  line.group("KV cache");
  add_cache_flags(line, flags.cache);
  line.integer("--kv-min", flags.min_kv_tokens, 0,
               "keep prompts of fewer tokens whole, unless a request names a method or budget (default: 256)");
  line.text("--kv-contexts", "SIZE", flags.context_bytes,
            "memory limit for contexts and conversations kept for later requests; 0B: keep none (default: a quarter of "
            "--kv-limit)");
  line.text("--cache-dir", "FOLDER", flags.cache_dir,
            "folder to save kept contexts in, and to restore them from at the start");
  line.text("--cache-dir-limit", "SIZE", flags.cache_dir_bytes,
            "size limit of --cache-dir, over all servers that share it (default: four times --kv-contexts)");
  line.group("Generation");
  line.integer("-n,--predict", flags.max_tokens, 1,
               "maximum number of tokens per answer if the request sets none (default: 1024)");
  add_sampling_flags(line, flags.sampling);
  return line.parse(arguments);
}

std::vector<std::string> all_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.api_keys;
  if (flags.api_key_file) {
    std::string text = read_text_file(*flags.api_key_file, input::kKeys) + "\n";
    for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      std::string key = text.substr(0, end);
      while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
      if (!key.empty()) keys.push_back(key);
    }
    if (keys.empty()) throw Error(ErrorCode::kInvalidArgument, *flags.api_key_file + " has no key: write one a line");
  }
  for (const std::string& key : keys) {
    if (key.empty()) throw UsageError("a key of --api-key is empty: give some text");
  }
  return keys;
}

// Prints a line of JSON on the standard error; lines of several threads do not mix.
void print_log(const Json& line) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char time[40];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &parts);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "{\"time\":\"%s.%03dZ\",%s\n", time, static_cast<int>(ms), server::to_text(line).c_str() + 1);
}

server::ServiceOptions service_options(const ServeFlags& flags, const std::string& path) {
  server::ServiceOptions options;
  options.access = {.api_keys = all_keys(flags),
                    .host = flags.host,
                    .allowed_origin = flags.cors_origin,
                    .allowed_hosts = flags.allowed_hosts};
  value_of("--cors-origin", [&] { server::require_origins(flags.cors_origin); });
  value_of("--allow-host", [&] { server::require_hosts(flags.allowed_hosts); });
  options.limits.body_bytes = parse_byte_size("--max-body", flags.max_body);
  options.max_connections = flags.max_connections;
  options.defaults = {.session = session_options(flags.cache),
                      .sampling = sampling_options(flags.sampling),
                      .max_tokens = flags.max_tokens,
                      .min_kv_tokens = flags.min_kv_tokens,
                      .n_parallel = flags.n_parallel};
  if (flags.pooling) options.defaults.pooling = value_of("--pooling", [&] { return parse_pooling(*flags.pooling); });
  options.model_name = flags.alias.empty() ? model_name_of(path) : flags.alias;
  options.request_s = flags.timeout_s;
  options.ping_s = std::max(flags.ping_s, 0);
  options.log = print_log;
  return options;
}

// Returns the engine's options. Without a limit of KV memory the free memory of the machine or the device sets it, less
// a fifth for everything else. All ranks take the smallest limit, since rank 0 decides for them what there is room for.
EngineOptions limited_engine(const ServeFlags& flags) {
  constexpr double kShare = 0.8;
  EngineOptions options = engine_options(flags.model);
  if (options.kv_bytes_limit > 0) return options;
  if (options.is_led) {
    const double share = kShare / static_cast<double>(mpi::launched_here());
    options.kv_bytes_limit = least_of_ranks(static_cast<std::size_t>(share * static_cast<double>(memory_available())));
  } else {
    options.kv_limit_share = kShare;
  }
  return options;
}

BatchOptions batch_options(const ServeFlags& flags, std::size_t kv_limit) {
  BatchOptions options{.n_parallel = flags.n_parallel, .max_queued = flags.n_queued, .cache_dir = flags.cache_dir};
  options.context_bytes = flags.context_bytes && *flags.context_bytes == "0B" ? 0
                          : flags.context_bytes ? parse_byte_size("--kv-contexts", *flags.context_bytes)
                                                : kv_limit / 4;
  if (flags.cache_dir_bytes) options.cache_dir_bytes = parse_byte_size("--cache-dir-limit", *flags.cache_dir_bytes);
  options.on_warning = [](const std::string& text) { print_log({{"event", "warning"}, {"message", text}}); };
  options.on_reading = [](const BatchReadingProgress& reading) {
    Json line = {{"event", "reading"},
                 {"request", reading.request},
                 {"tokens", reading.n_tokens},
                 {"tokens_done", std::llround(reading.share * reading.n_tokens)},
                 {"s", reading.seconds}};
    if (reading.share > 0) line["s_left"] = reading.seconds * (1 - reading.share) / reading.share;
    print_log(line);
  };
  return options;
}

// oneDNN keeps the code that it generated for 1,024 shapes, which takes tens of MiB, because prompts have many lengths.
// The engine itself keeps the code that it used last. Call this before any other thread starts.
void bound_code_cache() {
  constexpr int kKeep = 0;
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", kKeep);
}

// A connection has a thread, and the C library makes heaps for threads, up to eight per processor. Tens of MiB that are
// free in one heap are not available to the others, so the next one that grows takes more from the system. Call this
// before any other thread starts.
void bound_heaps() {
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, 2);
}

// Returns free memory to the system. Free memory between blocks in use stays with the C library, more of it the more
// mixed the requests are. It is returned when all requests under way have ended; the few milliseconds that this takes
// then delay no request.
class HeapTrimmer {
 public:
  void trim(const BatchStatistics& now) {
    const bool is_idle = now.n_queued + now.n_reading + now.n_answering == 0;
    if (!is_idle || now.requests == trimmed_at_) return;
    malloc_trim(0);
    trimmed_at_ = now.requests;
  }

 private:
  std::int64_t trimmed_at_ = 0;  // number of requests at the last return
};

// Blocks the signals that end the server in this thread and all that it starts, and returns them: they are waited for
// instead.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Loads the model in the background; /health is 503 until it is done.
class Loader {
 public:
  Loader(const ServeFlags& flags, const std::string& path, server::Service& service)
      : thread_([this, &flags, path, &service] { load(flags, path, service); }) {}
  ~Loader() { thread_.join(); }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns true once there is an error, or a batch, whose contexts must be saved at the end.
  bool is_done() const { return is_done_; }
  // Returns the batch once loading is done; null after an error.
  const Batch* batch() const { return batch_.get(); }

  std::exception_ptr error;  // set before the process gets its SIGTERM

 private:
  void load(const ServeFlags& flags, const std::string& path, server::Service& service) {
    try {
      const Stopwatch loading;
      const std::shared_ptr<const Model> model = Model::load(path, model_options(flags.model));
      check_with_model(flags.sampling, model);
      if (const auto warning = context_warning(model->info(), flags.cache.n_ctx)) {
        print_log({{"event", "warning"}, {"message", *warning}});
      }
      const std::shared_ptr<Engine> engine = Engine::create(model, limited_engine(flags));
      if (const std::string note = streaming_note(*engine); !note.empty()) {
        print_log({{"event", "warning"}, {"message", note}});
      }
      const std::size_t kv_limit = engine->memory().kv_bytes_limit;
      batch_ = std::make_unique<Batch>(engine, batch_options(flags, kv_limit));
      service.set_batch(batch_.get());
      const double seconds = loading.seconds();
      print_log({{"event", "ready"},
                 {"model", path},
                 {"seconds", seconds},
                 {"kv_bytes_limit", kv_limit},
                 {"contexts", batch_->entries().size()}});
      is_done_ = true;
    } catch (...) {
      error = std::current_exception();
      is_done_ = true;
      kill(getpid(), SIGTERM);
    }
  }

  std::atomic<bool> is_done_{false};
  std::unique_ptr<Batch> batch_;
  std::thread thread_;  // last: it uses all of the above
};

// Waits until a signal ends the server.
void wait_for_the_end(const sigset_t& signals, const Loader& loader) {
  constexpr timespec kLook{.tv_sec = 1, .tv_nsec = 0};
  HeapTrimmer heap_trimmer;
  for (;;) {
    if (sigtimedwait(&signals, nullptr, &kLook) > 0) return;
    if (loader.is_done() && loader.batch() != nullptr) heap_trimmer.trim(loader.batch()->statistics());
  }
}

// The connections' threads are given up, whatever they are doing, this long after the time that the end may take.
constexpr std::chrono::seconds kLastResort{15};

// Ends the process at a second signal, or if the connections do not end in time. Returns a flag to set once they have
// ended.
std::shared_ptr<std::atomic<bool>> watch_the_end(const sigset_t& signals, int seconds) {
  const auto have_ended = std::make_shared<std::atomic<bool>>(false);
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    _exit(128 + again);
  }).detach();
  std::thread([seconds, have_ended] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds) + kLastResort);
    if (*have_ended) return;  // contexts are being saved
    print_log(
        {{"event", "warning"}, {"message", "some requests have not ended in time: the server ends without them"}});
    _exit(1);
  }).detach();
  return have_ended;
}

}  // namespace

int serve_command(const Arguments& arguments) {
  ServeFlags flags;
  if (!parse_flags(arguments, flags)) return 0;
  if (flags.port > 65535) throw UsageError("--port takes a number up to 65535, not " + std::to_string(flags.port));
  if (flags.n_parallel > BatchOptions::kMaxParallel) {
    throw UsageError("--parallel takes a number up to " + std::to_string(BatchOptions::kMaxParallel) + ", not " +
                     std::to_string(flags.n_parallel));
  }
  if (flags.cache_dir_bytes && flags.cache_dir.empty()) throw UsageError("--cache-dir-limit needs --cache-dir");
  const std::string path = model_path(flags.model);
  if (!speaks()) {
    bound_code_cache();
    block_signals();  // rank 0 ends this process
    return follow_first_rank(flags.model, limited_engine(flags));
  }
  const server::ServiceOptions options = service_options(flags, path);
  model_options(flags.model);
  engine_options(flags.model);  // wrong flags are reported before the port is taken

  bound_code_cache();
  bound_heaps();
  const sigset_t signals = block_signals();
  server::Service service(options);
  const int port = service.bind(flags.host, flags.port);
  print_log({{"event", "listening"}, {"host", flags.host}, {"port", port}});
  if (options.access.api_keys.empty() && !server::is_loopback(flags.host)) {
    print_log(
        {{"event", "warning"},
         {"message", "anybody who reaches " + flags.host + " can use this server: set a key with --api-key-file"}});
  }
  if (options.access.api_keys.empty() && options.access.allowed_origin == "*") {
    print_log({{"event", "warning"},
               {"message",
                "every page that is open in a browser here can use this server: name the sites with "
                "--cors-origin, or set a key with --api-key-file"}});
  }

  std::exception_ptr error;
  {
    Loader loader(flags, path, service);
    std::thread serving([&] { service.serve(); });
    wait_for_the_end(signals, loader);
    error = loader.error;
    const int drain_s = !error && loader.is_done() ? flags.drain_s : 0;
    if (!error) print_log({{"event", "stopping"}, {"drain_s", drain_s}, {"grace_s", flags.grace_s}});
    const auto have_ended = watch_the_end(signals, drain_s + flags.grace_s);
    service.announce_end();
    std::this_thread::sleep_for(std::chrono::seconds(drain_s));
    service.stop(flags.grace_s);
    serving.join();
    *have_ended = true;
    // Loading cannot be cancelled, may take minutes, and has nothing to save.
    if (!loader.is_done()) {
      print_log({{"event", "stopped"}});
      _exit(0);
    }
  }
  if (error) std::rethrow_exception(error);
  print_log({{"event", "stopped"}});
  return 0;
}

}  // namespace winnow::cli
