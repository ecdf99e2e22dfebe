// winnow eval: benchmarks x methods x budgets, into a folder of answers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cache_flags.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/evaluation_table.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/progress_bar.h"
#include "cli/ranks.h"
#include "cli/text_output.h"
#include "eval/run/plan.h"
#include "eval/run/result_store.h"
#include "eval/run/run_plan.h"
#include "winnow/error.h"
#include "winnow/session.h"

namespace winnow::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::vector<std::string> methods, budgets, tasks, data, depths;
  std::vector<int> lengths;
  std::string question = "agnostic";
  std::optional<std::string> chat_template, haystack, words, jieba, kv_memory;
  int n_ctx = 0, limit = 0, seed = 0;
  std::optional<int> batch, batch_tokens;
  std::string key_type = "f16", value_type = "f16";
  std::string out, shard = "1/1";
  bool skip_bad = false, resume = false, retry_failed = false;
};

constexpr const char* kEvalExamples =
    "  winnow eval fidelity --methods snapkv,ada-snapkv,tova --budgets 20%,10% \\\n"
    "      --limit 20 --out results/fidelity\n"
    "  winnow eval niah ruler --methods 'full;snapkv:window=16,pool=none;tova' \\\n"
    "      --budgets 20%,128 --question both --lengths 2048,4096 --out results/long\n"
    "  winnow eval longbench --data LongBench/data --methods full,snapkv \\\n"
    "      --budgets 128,1024 --question aware --shard 1/4 --out results/longbench\n"
    "  winnow eval fidelity:longbench --data LongBench/data --tasks qasper,lcc \\\n"
    "      --budgets 10%bytes,5%bytes --out results/answers\n"
    "  winnow report results/long\n";

std::string benchmark_names() {
  std::string names;
  for (const eval::Benchmark* benchmark : eval::benchmarks()) {
    names += (names.empty() ? "" : ", ") + std::string(benchmark->name());
  }
  return names;
}

bool parse_flags(Arguments arguments, EvalFlags& flags, std::vector<std::string>& benchmarks) {
  const auto first_flag =
      std::find_if(arguments.begin(), arguments.end(), [](const auto& a) { return a.starts_with("-"); });
  benchmarks.assign(arguments.begin(), first_flag);
  arguments.erase(arguments.begin(), first_flag);
  CommandLine line("winnow eval", "BENCHMARK... --out FOLDER [flags]",
                   "Runs benchmarks with every method at every budget and writes each answer to disk as it comes. "
                   "Repeat the command to resume a run that was stopped. Benchmarks: " +
                       benchmark_names() +
                       "; fidelity:BENCHMARK measures how far predictions are from the full cache's, over the full "
                       "cache's answers to that benchmark's questions.",
                   kEvalExamples);
  line.group("What to compare");
  line.texts("--methods", "LIST", '\0', flags.methods,
             "methods, see `winnow methods`, separated by commas or semicolons; NAME=VALUE after a comma belongs to "
             "the method before it; may be repeated (default with --budgets: full,auto)");
  line.texts("--budgets", "AMOUNT,..", ',', flags.budgets, "budgets of the methods, e.g. 5%,20%,5%bytes,128,64MiB");
  line.text("--question", "MODE", flags.question,
            "when the cache is cut: aware, with the question in view; agnostic, before the question is known; both "
            "(default: agnostic)");
  line.text("--chat-template", "on|off", flags.chat_template,
            "apply the model's chat template to prompts (default: on if it has one)");
  line.group("Samples");
  line.texts("--tasks", "NAME,..", ',', flags.tasks, "run only these tasks");
  line.integer("--limit", flags.limit, 0, "maximum number of samples per task (default: 0, all)");
  line.integer("--seed", flags.seed, 0, "seed for generated samples (default: 0)");
  line.integers("--lengths", flags.lengths, 1, "lengths of generated samples in tokens");
  line.texts("--depths", "PERCENT,..", ',', flags.depths, "depths at which needles are hidden");
  line.texts("--data", "[BENCHMARK=]PATH", '\0', flags.data,
             "data in the benchmark's own format; repeat the flag for several benchmarks");
  line.text("--haystack", "FILE", flags.haystack,
            "text to hide needles in, or to take the passages of fidelity and perplexity from");
  line.text("--words", "FOLDER", flags.words, "folder of RULER's word lists");
  line.text("--jieba", "FOLDER", flags.jieba, "folder of the jieba package, to score Chinese tasks by words");
  line.flag("--skip-bad", flags.skip_bad, "skip malformed lines of data");
  line.group("Run");
  line.text("--out", "FOLDER", flags.out, "folder for the answers; each run needs its own");
  line.text("--shard", "I/N", flags.shard, "run part I of N, into the same folder (default: 1/1)");
  line.flag("--resume", flags.resume, "only resume a run, never begin a new one");
  line.flag("--retry-failed", flags.retry_failed, "rerun failed samples");
  line.integer("--batch", flags.batch, 1,
               "maximum number of sequences at a time; 1: each method alone, which is slow but measures its own times "
               "(default: 32)");
  line.integer(
      "--batch-tokens", flags.batch_tokens, 1,
      "maximum number of tokens, read and written, of samples that run together (default: what is read in a minute)");
  line.text("--kv-memory", "SIZE", flags.kv_memory,
            "KV memory limit for all that runs together (default: --kv-limit, else half of the free memory)");
  line.group("Model");
  add_model_flag(line, flags.model);
  line.integer(
      "-c,--ctx-size", flags.n_ctx, 0,
      "context size in tokens, for prompt and answer; longer prompts lose their middle (default: 0, the model's)");
  add_type_flags(line, flags.key_type, flags.value_type);
  flags.model.prefill_weights = "float";  // rounding activations to 8 bits would hide what a cut costs
  add_engine_flags(line, flags.model);
  add_pipeline_flag(line, flags.model);
  add_device_flags(line, flags.model);
  const std::string advice =
      "name benchmarks before the flags, e.g. `winnow eval fidelity`; the benchmarks are " + benchmark_names();
  line.refuse_arguments(advice);
  if (!line.parse(std::move(arguments))) return false;
  if (benchmarks.empty()) throw UsageError(advice);
  if (flags.out.empty()) throw UsageError("--out is missing: name the folder for the answers");
  return true;
}

eval::EvaluationRequest request_of(const EvalFlags& flags, const std::vector<std::string>& benchmarks) {
  eval::EvaluationRequest request;
  request.benchmarks = benchmarks;
  request.methods = flags.methods;
  if (flags.methods.empty() && !flags.budgets.empty()) request.methods = {"full", "auto"};
  request.budgets = flags.budgets;
  request.modes = value_of("--question", [&] { return eval::parse_question_modes(flags.question); });
  if (flags.chat_template) {
    if (*flags.chat_template != "on" && *flags.chat_template != "off") {
      throw UsageError("--chat-template takes on or off, not '" + *flags.chat_template + "'");
    }
    request.use_chat_template = *flags.chat_template == "on";
  }
  request.n_ctx = flags.n_ctx;
  request.key_type = parse_key_type(flags.key_type);
  request.value_type = parse_value_type(flags.value_type);
  request.prefill_weights = engine_options(flags.model).prefill_weights;
  eval::SampleOptions& samples = request.samples;
  samples.tasks = flags.tasks;
  samples.lengths.assign(flags.lengths.begin(), flags.lengths.end());
  for (const std::string& depth : flags.depths) {
    samples.depths.push_back(parse_number("--depths", depth));
    if (samples.depths.back() < 0 || samples.depths.back() > 100) {
      throw UsageError("--depths takes percentages from 0 to 100, not " + depth);
    }
  }
  samples.haystack = flags.haystack.value_or("");
  samples.words = flags.words.value_or("");
  samples.limit = flags.limit;
  samples.seed = static_cast<std::uint64_t>(flags.seed);
  samples.skip_bad = flags.skip_bad;
  samples.on_skipped = [](const std::string& what) { std::fprintf(stderr, "left out: %s\n", what.c_str()); };
  for (const std::string& text : flags.data) {
    const std::size_t equals = text.find('=');
    // A path may contain an equals sign, a benchmark's name does not.
    const bool is_named = equals != std::string::npos && text.find('/') > equals;
    if (!request.data.emplace(is_named ? text.substr(0, equals) : "", is_named ? text.substr(equals + 1) : text)
             .second) {
      throw UsageError("--data is given twice for the same benchmark: write --data BENCHMARK=PATH");
    }
  }
  return request;
}

}  // namespace

int eval_command(const Arguments& arguments) {
  EvalFlags flags;
  std::vector<std::string> benchmarks;
  if (!parse_flags(arguments, flags, benchmarks)) return 0;
  eval::EvaluationRequest request = request_of(flags, benchmarks);
  const eval::Shard shard = value_of("--shard", [&] { return eval::Shard::parse(flags.shard); });
  std::vector<eval::Cell> cells = value_of("winnow eval", [&] { return check_request(request); });
  for (const eval::Cell& cell : cells) {
    if (cell.budget) check_loss_budget("--budgets", cell.eviction, *cell.budget);
  }
  if (flags.jieba) eval::set_jieba(*flags.jieba);
  const EngineOptions engine_settings = engine_options(flags.model);
  if (!speaks()) return follow_first_rank(flags.model, engine_settings);
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  warn_about_context(model->info(), flags.n_ctx);
  eval::use_tokenizer(request.samples, model);
  const eval::Plan plan = make_plan(request, std::move(cells), model);
  if (flags.jieba && !plan.configuration.contains(eval::kChineseWords)) {
    throw UsageError("--jieba has no effect: none of the tasks is scored by Chinese words");
  }
  for (const std::string& note : plan.notes) std::fprintf(stderr, "note: %s\n", note.c_str());

  eval::RunOptions options{.folder = flags.out, .shard = shard, .batch = flags.batch};
  if (flags.batch_tokens) options.batch_tokens = *flags.batch_tokens;
  if (flags.kv_memory) options.kv_memory = parse_byte_size("--kv-memory", *flags.kv_memory);
  if (flags.resume) options.start = eval::ResultStore::Start::kResume;
  options.retry_failed = flags.retry_failed;
  bool is_complete = false;
  {
    const Interrupt interrupt;
    ProgressBar bar("answers");
    constexpr double kSteps = 1e6;
    is_complete = run_plan(plan, request, create_engine(model, engine_settings), engine_settings, options,
                           {.should_stop = [&] { return interrupt.requested(); },
                            .on_work =
                                [&](const EvaluationWork& work) {
                                  bar.update(std::llround(work.share * kSteps), static_cast<std::int64_t>(kSteps),
                                             count_text(work.answers_done) + " of " + count_text(work.answers_total) +
                                                 ", now " + count_text(work.tokens_done) + " of " +
                                                 count_text(work.tokens_total) + " tokens through the layers");
                                }});
  }
  const EvaluationTable table = evaluation_table(flags.out);
  const bool is_read = write_output(table.text);
  if (is_complete && !table.has_success) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "no answer succeeded, for the reasons above: with other flags name a new folder, with the same ones add "
        "--retry-failed");
  }
  if (!is_read || is_complete) return 0;
  std::fputs("stopped: run the same command again to continue\n", stderr);
  return kInterruptedExitCode;
}

}  // namespace winnow::cli
