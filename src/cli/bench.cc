// winnow bench: llama-bench's tests, after a depth that a method has cut.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/process_memory.h"
#include "cli/bench_rows.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranks.h"
#include "cli/text_output.h"
#include "device/devices.h"
#include "engine/planned_cuts.h"
#include "engine/steps_in_turn.h"
#include "winnow/error.h"
#include "winnow/session.h"

namespace winnow::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  std::vector<int> n_prompt{512}, n_gen{128}, n_depth{0};
  std::vector<int> n_threads{0}, n_batch{0}, n_parallel{1};
  int prefill_chunk = 0;
  int repetitions = 5;
  std::vector<std::string> key_types{"f16"}, value_types{"f16"};
  std::vector<std::string> methods, budgets;
  std::string format = "md";
};

constexpr const char* kBenchExamples =
    "  winnow bench\n"
    "  winnow bench -p 0 -n 64 -d 0,4096 --kv-evict full --kv-evict snapkv \\\n"
    "      --kv-budget 20%,10%\n"
    "  winnow bench -p 512,4096 -n 0 -o json > rows.json\n";

bool parse_flags(const Arguments& arguments, BenchFlags& flags) {
  CommandLine line("winnow bench", "[flags]",
                   "Measures the speed of prefill (pp) and generation (tg) on random tokens, and the memory that they "
                   "take. Each combination of the listed values is a row.",
                   kBenchExamples);
  line.group("Model");
  add_model_flag(line, flags.model);
  line.integers("-t,--threads", flags.n_threads, 0, "number of threads (default: the number of physical cores)",
                EngineOptions::kMostThreads);
  line.integers("-b,--batch-size", flags.n_batch, 1,
                "prefill batch size: tokens sent through a layer at a time (default: 512, on a GPU 2048)",
                EngineOptions::kMostBatch);
  add_device_flags(line, flags.model);
  line.group("Tests");
  line.integers("-p,--n-prompt", flags.n_prompt, 0, "number of tokens to prefill; 0: skip the test (default: 512)");
  line.integers("-n,--n-gen", flags.n_gen, 0, "number of tokens to generate; 0: skip the test (default: 128)");
  line.integers("-d,--n-depth", flags.n_depth, 0,
                "number of tokens in the cache before a test, cut to the budget (default: 0)");
  line.integers("--parallel", flags.n_parallel, 1,
                "number of sequences that generate at once, each with its own cache (default: 1)");
  line.integer("-r,--repetitions", flags.repetitions, 1, "number of measurements of each test (default: 5)");
  line.group("KV cache");
  line.texts("--cache-type-k", "TYPE,..", ',', flags.key_types, "storage type of keys (default: f16)");
  line.texts("--cache-type-v", "TYPE,..", ',', flags.value_types, "storage type of values (default: f16)");
  line.texts("--kv-evict", "METHOD", '\0', flags.methods,
             "eviction method; repeat the flag for several (default: full, or auto with --kv-budget)");
  line.texts("--kv-budget", "AMOUNT,..", ',', flags.budgets, "budgets of the methods, e.g. 512,20%");
  line.integer(
      "--prefill-chunk", flags.prefill_chunk, 0,
      "tokens per chunk of the prefill, with a cut after each, for methods that evict; 0: layer by layer (default: 0)");
  line.text("--prefill-weights", "TYPE", flags.model.prefill_weights,
            "number format of the prefill's matrix products: auto, as-is, int8, float, bf16, f32 (default: auto)");
  line.text("--kv-limit", "SIZE", flags.model.kv_limit, "hard limit on KV memory (default: none)");
  add_repack_flag(line, flags.model);
  add_pipeline_flag(line, flags.model);
  line.group("Output");
  line.text("-o,--output", "FORMAT", flags.format, "output format: md, json or csv (default: md)");
  return line.parse(arguments);
}

// Returns the name of the card, "" for the processor. Listing the devices loads the plugin, as computing on one does.
std::string name_of_device(const std::string& id) {
  if (id == "cpu") return "";
  for (const device::DeviceInfo& device : device::list_devices()) {
    if (device.id != "cpu" && (device.id == id || id == "cuda" || id == "auto")) return device.name;
  }
  return "";
}

struct EvictionSetup {
  EvictionOptions eviction;
  std::optional<Budget> budget;
};

std::vector<EvictionSetup> eviction_setups(const BenchFlags& flags) {
  const std::vector<Budget> budgets = parse_budgets("--kv-budget", flags.budgets);
  std::vector<EvictionSetup> setups;
  bool any_evicts = false;
  std::vector<std::string> methods = flags.methods;
  if (methods.empty()) methods = {budgets.empty() ? "full" : "auto"};
  for (const EvictionOptions& eviction : parse_methods("--kv-evict", methods)) {
    if (!eviction.evicts()) {
      setups.push_back({eviction, std::nullopt});
      continue;
    }
    any_evicts = true;
    if (budgets.empty()) throw missing_budget(eviction.text());
    for (const Budget& budget : budgets) {
      check_loss_budget("--kv-budget", eviction, budget);
      setups.push_back({eviction, budget});
    }
  }
  if (!budgets.empty() && !any_evicts) {
    throw UsageError("--kv-budget has no effect on the full cache: add a method, e.g. --kv-evict snapkv");
  }
  if (flags.prefill_chunk > 0 && !any_evicts) {
    throw UsageError("--prefill-chunk has no effect on the full cache: add a method, e.g. --kv-evict snapkv");
  }
  return setups;
}

std::vector<EntryType> entry_types(const std::string& flag, const std::vector<std::string>& names,
                                   EntryType (*parse)(const std::string&)) {
  std::vector<EntryType> types;
  for (const std::string& name : names) {
    const EntryType type = parse(name);
    if (std::find(types.begin(), types.end(), type) != types.end()) {
      throw UsageError(flag + ": the type " + name + " is given twice: name it once");
    }
    types.push_back(type);
  }
  return types;
}

// Random tokens, the same in every run. They are not text, but speed does not depend on that.
class RandomTokens {
 public:
  explicit RandomTokens(int n_vocab) : choose_(0, n_vocab - 1) {}
  Token next() { return choose_(generator_); }
  std::vector<Token> next(int count) {
    std::vector<Token> tokens(static_cast<std::size_t>(count));
    for (Token& token : tokens) token = next();
    return tokens;
  }

 private:
  std::mt19937 generator_{20240607};
  std::uniform_int_distribution<Token> choose_;
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return buffer;
}

struct Test {
  int n_prompt, n_gen, n_depth, n_parallel;

  int n_tokens() const { return n_prompt + n_gen + n_depth; }  // of each sequence at the end
};

// A row to measure, with every engine.
struct PlannedRow {
  SessionOptions options;
  Test test;
};

// Generates with groups of sequences that take turns over the ranks, as those of a server do.
void generate_in_turn(Engine& engine, std::span<Session* const> sessions, int n_gen, RandomTokens& tokens) {
  const std::size_t n_groups = std::min(sessions.size(), static_cast<std::size_t>(n_steps_at_once(engine)));
  const std::size_t size = (sessions.size() + n_groups - 1) / n_groups;
  std::size_t n_started = 0;
  for (int i = 0; i < n_gen; ++i) {
    for (std::size_t first = 0; first < sessions.size(); first += size) {
      if (i > 0) finish_step(engine);
      const std::span<Session* const> group = sessions.subspan(first, std::min(size, sessions.size() - first));
      start_step(engine, group, tokens.next(static_cast<int>(group.size())));
      n_started += i == 0;
    }
  }
  for (; n_started > 0; --n_started) finish_step(engine);
}

// Prefills one sequence, or generates with all of them.
void run_once(Engine& engine, std::span<Session* const> sessions, const Test& test, RandomTokens& tokens) {
  if (test.n_prompt > 0) sessions.front()->prefill(tokens.next(test.n_prompt));
  if (ranks() != nullptr) return generate_in_turn(engine, sessions, test.n_gen, tokens);
  for (int i = 0; i < test.n_gen; ++i) engine.decode(sessions, tokens.next(test.n_parallel));
}

std::vector<Session*> pointers_to(std::vector<Session>& sessions) {
  std::vector<Session*> pointers;
  for (Session& session : sessions) pointers.push_back(&session);
  return pointers;
}

// Fills the measured fields of the row.
void measure(Engine& engine, const PlannedRow& planned, int repetitions, BenchRow& row) {
  const SessionOptions& options = planned.options;
  const Test& test = planned.test;
  RandomTokens tokens(row.model.n_vocab);
  const auto open_all = [&] {
    std::vector<Session> sessions;
    for (int i = 0; i < test.n_parallel; ++i) sessions.push_back(engine.open(options));
    return sessions;
  };
  // llama-bench warms up in the same way: with the whole prompt, or one token.
  {
    std::vector<Session> sessions = open_all();
    Test warm_up = test;
    warm_up.n_gen = std::min(test.n_gen, 1);
    run_once(engine, pointers_to(sessions), warm_up, tokens);
  }
  engine.reset_peak();
  reset_rss_peak();
  row.test_time = utc_now();
  std::vector<Session> base = open_all();
  if (test.n_depth > 0) {
    // Chunked prefill takes one sequence at a time; each has its own pages either way.
    const std::vector<Token> depth = tokens.next(test.n_depth);
    if (options.prefill_chunk == 0) {
      engine.prefill(pointers_to(base), depth);
    } else {
      for (Session& session : base) session.prefill(depth);
    }
  }
  for (int i = 0; i < repetitions; ++i) {
    std::vector<Session> sessions;
    if (test.n_depth == 0) sessions = open_all();
    for (const Session& session : base) {
      if (test.n_depth > 0) sessions.push_back(session.fork());
    }
    const std::vector<Session*> pointers = pointers_to(sessions);
    const auto start = std::chrono::steady_clock::now();
    run_once(engine, pointers, test, tokens);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    row.samples_ns.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
    const SessionStatistics statistics = sessions.front().statistics();
    row.entries_full = statistics.entries_full * test.n_parallel;
    row.entries_kept = statistics.entries_kept * test.n_parallel;
    row.bytes_kept = statistics.bytes_kept * static_cast<std::size_t>(test.n_parallel);
    row.prefill_s = statistics.prefill_s;
    row.evict_s = statistics.evict_s;
  }
  row.bytes_peak = engine.memory().kv_bytes_peak;
  row.rss_peak_bytes = rss_peak_bytes();
  if (ranks() == nullptr) return;
  row.bytes_peak = 0;
  for (const RankMemory& rank : engine.memory_of_ranks()) {
    row.bytes_peak += rank.kv_bytes_peak;
    row.rss_peak_bytes = std::max(row.rss_peak_bytes, static_cast<std::size_t>(rank.rss_peak_bytes));
  }
}

std::vector<Test> tests_of(const BenchFlags& flags) {
  std::vector<Test> tests;
  for (const int depth : flags.n_depth) {
    for (const int count : flags.n_prompt) {
      if (count > 0) tests.push_back({count, 0, depth, 1});
    }
    for (const int count : flags.n_gen) {
      for (const int parallel : flags.n_parallel) {
        if (count > 0) tests.push_back({0, count, depth, parallel});
      }
    }
  }
  if (tests.empty()) throw UsageError("-p 0 with -n 0 leaves nothing to measure");
  const bool generates = std::any_of(tests.begin(), tests.end(), [](const Test& test) { return test.n_gen > 0; });
  if (!generates && flags.n_parallel != BenchFlags().n_parallel) {
    throw UsageError("-np has no effect with -n 0: only generation takes several sequences at once");
  }
  return tests;
}

// Returns the rows of an engine in the order in which they are printed. Their contexts hold the tokens of the test.
std::vector<PlannedRow> planned_rows(const BenchFlags& flags) {
  const std::vector<Test> tests = tests_of(flags);
  const std::vector<EvictionSetup> setups = eviction_setups(flags);
  const std::vector<EntryType> key_types = entry_types("-ctk", flags.key_types, parse_key_type);
  const std::vector<EntryType> value_types = entry_types("-ctv", flags.value_types, parse_value_type);
  std::vector<PlannedRow> rows;
  for (const EntryType key : key_types) {
    for (const EntryType value : value_types) {
      for (const EvictionSetup& setup : setups) {
        for (const Test& test : tests) {
          SessionOptions options;
          options.n_ctx = test.n_tokens();
          options.key_type = key;
          options.value_type = value;
          options.eviction = setup.eviction;
          options.budget = setup.budget;
          if (setup.eviction.evicts()) options.prefill_chunk = flags.prefill_chunk;
          rows.push_back({std::move(options), test});
        }
      }
    }
  }
  return rows;
}

std::vector<PlannedCut> cuts_of(const std::vector<PlannedRow>& rows) {
  std::vector<PlannedCut> cuts;
  for (const auto& [options, test] : rows) {
    if (test.n_depth > 0) cuts.push_back({options, test.n_depth});
    if (test.n_prompt > 0) cuts.push_back({options, test.n_depth + test.n_prompt});
  }
  return cuts;
}

// Returns the row with what is known of it before it is measured.
BenchRow unmeasured(const PlannedRow& planned, Engine& engine, const std::string& path,
                    const std::string& device_name) {
  const auto& [options, test] = planned;
  const ModelInfo& model = engine.model()->info();
  const SessionOptions opened = engine.open(options).options();  // a method may choose the types
  return {.model_filename = path,
          .model = model,
          .n_batch = engine.n_batch(),
          .n_threads = engine.n_threads(),
          .device = engine.device(),
          .device_name = device_name,
          .device_layers = engine.device() == "cpu" ? 0 : model.n_layer() - engine.n_streamed_layers(),
          .type_k = opened.stored_key_types(),
          .type_v = opened.stored_value_types(),
          .n_prompt = test.n_prompt,
          .n_gen = test.n_gen,
          .n_depth = test.n_depth,
          .n_parallel = test.n_parallel,
          .method = options.eviction.text(),
          .budget = options.budget ? options.budget->text() : ""};
}

// Returns false if the output is no longer read.
bool print(const std::string& text) {
  const bool is_read = write_output(text);
  if (!is_read && ranks() != nullptr) throw Error(ErrorCode::kIo, "nobody reads the results any more");  // ends all
  return is_read;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  BenchFlags flags;
  if (!parse_flags(arguments, flags)) return 0;
  const std::unique_ptr<BenchFormat> format = make_bench_format(flags.format);
  std::vector<PlannedRow> rows = planned_rows(flags);
  EngineOptions engine_settings = engine_options(flags.model);
  engine_settings.is_led = false;  // engines are made and destroyed, so all ranks make all calls
  const std::string path = model_path(flags.model);
  const std::shared_ptr<const Model> model = Model::load(path, model_options(flags.model));
  // This measures speed, so the trained context is no limit.
  for (PlannedRow& row : rows) row.options.n_ctx = std::max(model->info().n_ctx_train, row.test.n_tokens());
  check_cuts(*create_engine(model, engine_settings), cuts_of(rows));

  const std::string device_name = name_of_device(engine_settings.device);
  if (!print(format->begin())) return 0;
  for (const int n_threads : flags.n_threads) {
    for (const int n_batch : flags.n_batch) {
      engine_settings.n_threads = n_threads;
      engine_settings.n_batch = n_batch;
      const std::shared_ptr<Engine> engine = Engine::create(model, engine_settings);
      for (const PlannedRow& planned : rows) {
        BenchRow row = unmeasured(planned, *engine, path, device_name);
        measure(*engine, planned, flags.repetitions, row);
        if (!print(format->row(row))) return 0;
      }
    }
  }
  print(format->end());
  return 0;
}

}  // namespace winnow::cli
