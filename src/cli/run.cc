// winnow run: a prompt, or a document and a question about it; the text streams to the standard output.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_memory.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/prefill_step.h"
#include "cli/prompt_source.h"
#include "cli/ranks.h"
#include "cli/run_report.h"
#include "cli/sampling_flags.h"
#include "cli/text_output.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct RunFlags {
  ModelFlags model;
  PromptFlags prompt;
  std::optional<std::string> question;
  bool question_aware = false;
  bool chat = false;
  bool no_chat = false;
  std::optional<std::string> system;
  int max_tokens = -1;
  bool ignore_eos = false;
  SamplingFlags sampling;
  CacheFlags cache;
  std::optional<std::string> json;
  std::optional<std::string> positions;
  bool verbose = false;
};

constexpr const char* kRunExamples =
    "  winnow run -p \"The capital of France is\" -n 16 --temp 0\n"
    "  winnow run -f book.txt -q \"Who is the narrator?\" \\\n"
    "      --kv-evict snapkv --kv-budget 20%\n"
    "  cat notes.txt | winnow run -q \"What is due on Monday?\" --json result.json\n";

bool parse_flags(const Arguments& arguments, RunFlags& flags) {
  CommandLine line("winnow run", "[flags]",
                   "Generates text from a prompt, or answers a question about a document. The text is streamed to "
                   "standard output; everything else goes to standard error. Ctrl-C stops and prints the statistics.",
                   kRunExamples);
  line.group("Model");
  add_model_flag(line, flags.model);
  add_template_flags(line, flags.model);
  add_engine_flags(line, flags.model);
  add_pipeline_flag(line, flags.model);
  add_device_flags(line, flags.model);
  line.group("Prompt");
  line.text("-p,--prompt", "TEXT", flags.prompt.text, "prompt, or the document that -q asks about");
  line.text("-f,--file", "FILE", flags.prompt.file, "read the prompt or document from a file; - for standard input");
  line.text("-q,--question", "TEXT", flags.question,
            "question about the document, which is compressed before the question is seen; the question is kept whole");
  line.flag("--question-aware", flags.question_aware, "compress document and question together");
  line.flag("--chat", flags.chat, "apply the chat template (default with -q if the model has one)");
  line.flag("--no-chat", flags.no_chat, "do not apply the chat template (default without -q)");
  line.text("--system", "TEXT", flags.system, "system message, for the chat template");
  line.group("Generation");
  line.integer("-n,--predict", flags.max_tokens, -1,
               "maximum number of tokens to generate (default: -1, until the model stops)");
  line.flag("--ignore-eos", flags.ignore_eos, "never choose an end-of-generation token");
  add_sampling_flags(line, flags.sampling);
  line.group("KV cache");
  add_cache_flags(line, flags.cache);
  line.group("Output");
  line.text("--json", "FILE", flags.json, "write a report as JSON; - for standard output, instead of the text");
  line.text("--kv-positions", "FILE", flags.positions,
            "write the positions that each head holds at the end as JSON: {\"n_tokens\": N, \"positions\": "
            "[layer][KV head][position]}");
  line.flag("-v,--verbose", flags.verbose,
            "also print the model, the seed and the number of entries kept by each head");
  line.exclude("--prompt", "--file");
  line.exclude("--chat", "--no-chat");
  return line.parse(arguments);
}

void check_flags(const RunFlags& flags) {
  if (flags.chat && flags.no_chat) throw UsageError("--chat and --no-chat contradict each other: use one of them");
  if (flags.question && flags.question->empty()) throw UsageError("the question of -q is empty: ask something");
  if (flags.question_aware && !flags.question) throw UsageError("--question-aware has no effect without -q QUESTION");
  if (flags.system && (flags.no_chat || (!flags.chat && !flags.question))) {
    throw UsageError("--system has no effect without the chat template: add --chat");
  }
  if (has_template_flags(flags.model) && (flags.no_chat || (!flags.chat && !flags.question))) {
    throw UsageError("--chat-template has no effect on a plain prompt: add --chat");
  }
}

// Returns the prompt in the pieces in which it is fed: the context is cut to the budget, the question appended whole.
PromptTokens tokenize_prompt(const Model& model, const RunFlags& flags, const std::string& prompt) {
  const bool chat = flags.chat || (flags.question && !flags.no_chat && model.has_chat_template());
  if (flags.system && !chat) {
    throw Error(ErrorCode::kUnsupported, "--system needs a chat template, and the model has none: leave it out");
  }
  const std::string question = flags.question ? "\n\n" + *flags.question : "";
  SplitPrompt text{prompt, question};
  if (chat) text = split_chat(model, flags.system.value_or(""), prompt, question);
  if (!flags.question) return {.context = model.tokenize(text.before + text.after, true, true), .question = {}};
  // Both modes split at the same place, so that they differ in the eviction alone.
  PromptTokens tokens = tokenize(model, text);
  if (flags.question_aware) {
    tokens.context.insert(tokens.context.end(), tokens.question.begin(), tokens.question.end());
    tokens.question.clear();
  }
  return tokens;
}

void explain(FinishReason reason, std::size_t n_tokens) {
  if (reason == FinishReason::kContextFull) {
    std::fprintf(stderr, "the context is full after %s generated tokens: -c sets its size\n",
                 count_text(static_cast<std::int64_t>(n_tokens)).c_str());
  } else if (reason == FinishReason::kCancelled) {
    std::fputs("interrupted\n", stderr);
  }
}

}  // namespace

int run_command(const Arguments& arguments) {
  RunFlags flags;
  if (!parse_flags(arguments, flags)) return 0;

  // All that can be wrong without a model is found before one is loaded.
  check_flags(flags);
  SessionOptions session_settings = session_options(flags.cache);
  session_settings.question_aware = flags.question_aware || (flags.chat && !flags.question);
  const EngineOptions engine_settings = engine_options(flags.model);
  if (!speaks()) return follow_first_rank(flags.model, engine_settings);
  const SamplingOptions sampling = sampling_options(flags.sampling);
  check_penalty_range(flags.sampling);
  check_outputs({{"--json", flags.json}, {"--kv-positions", flags.positions}});
  std::optional<OutputFile> report_file;
  if (flags.json) report_file.emplace(*flags.json);
  std::optional<OutputFile> positions_file;
  if (flags.positions) positions_file.emplace(*flags.positions);
  PromptSource source(flags.prompt);

  const Clock::time_point load_start = Clock::now();
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  const std::shared_ptr<Engine> engine = create_engine(model, engine_settings);
  RunReport report;
  report.load_s = seconds_since(load_start);
  if (session_settings.budget) report.budget = session_settings.budget->text();

  check_with_model(flags.sampling, model);
  warn_about_context(model->info(), flags.cache.n_ctx);
  Session session = engine->open(session_settings);
  report.method = session.options().eviction.text();
  const std::string prompt = source.read(*model, flags.cache.n_ctx > 0 ? flags.cache.n_ctx : model->info().n_ctx_train);
  const PromptTokens tokens = tokenize_prompt(*model, flags, prompt);
  check_context(session, *model, tokens.size());

  Interrupt interrupt;
  if (flags.verbose) {
    std::fprintf(stderr, "%s %s, %d threads, %s prompt tokens\n", model->info().architecture.c_str(),
                 model->info().name.c_str(), engine->n_threads(),
                 count_text(static_cast<std::int64_t>(tokens.size())).c_str());
  }
  const Clock::time_point prefill_start = Clock::now();
  GenerationResult answer;
  answer.reason = FinishReason::kCancelled;
  const bool fed = feed_prompt(session, tokens.context, FeedMode::kCut, interrupt) &&
                   (tokens.question.empty() || feed_prompt(session, tokens.question, FeedMode::kAppend, interrupt));
  if (fed) {
    Sampler sampler = make_sampler(model, sampling, session);
    if (flags.verbose) std::fprintf(stderr, "seed %u\n", sampler.seed());
    const bool show_text = !report_file || !report_file->is_stdout();
    answer = generate(session, sampler,
                      {.max_tokens = flags.max_tokens,
                       .ignore_end = flags.ignore_eos,
                       .feed_last = false,
                       .is_cancelled = [&] { return interrupt.requested(); }},
                      [&](const GenerationStep& step) { return !show_text || write_output(step.text); });
    if (!answer.tokens.empty()) {
      report.ttft_s = std::chrono::duration<double>(answer.first_token_at - prefill_start).count();
    }
    const bool ends_line = answer.text.empty() || answer.text.ends_with('\n');
    if (show_text && !ends_line && ranks() == nullptr && isatty(STDOUT_FILENO) == 1) {
      write_output("\n");
    }
  }

  report.statistics = session.statistics();
  report.rss_peak_bytes = rss_peak_bytes();
  if (ranks() != nullptr) report.ranks = engine->memory_of_ranks();
  report.text = std::move(answer.text);
  report.token_ids = std::move(answer.tokens);
  // A reader that closed the pipe has seen enough, of the statistics as well.
  if (answer.reason != FinishReason::kStopped) {
    explain(answer.reason, report.token_ids.size());
    std::fprintf(stderr, "\n%s", run_report_text(report).c_str());
    if (flags.verbose) std::fputs(kept_entries_text(report.statistics).c_str(), stderr);
  }
  // A script takes a file for a whole answer, so an interrupted run writes none.
  const bool is_interrupted = answer.reason == FinishReason::kCancelled;
  const auto takes = [&](const std::optional<OutputFile>& file) {
    return file && (!is_interrupted || file->is_stdout());
  };
  if (takes(report_file)) report_file->write(run_report_json(report));
  if (takes(positions_file)) positions_file->write(positions_json(session, model->info()));
  return is_interrupted ? kInterruptedExitCode : 0;
}

}  // namespace winnow::cli
