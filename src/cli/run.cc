// winnow run: a prompt, or a document and a question about it; the text streams to the standard output.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_memory.h"
#include "base/stopwatch.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/feed_prompt.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/prompt_source.h"
#include "cli/ranks.h"
#include "cli/run_report.h"
#include "cli/sampling_flags.h"
#include "cli/session_sampler.h"
#include "cli/text_output.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow::cli {
namespace {

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

// The files that the flags name.
struct RunFiles {
  // Throws Error(kIo) or UsageError for one that cannot be written.
  explicit RunFiles(const RunFlags& flags) {
    check_outputs({{"--json", flags.json}, {"--kv-positions", flags.positions}});
    if (flags.json) report.emplace(*flags.json);
    if (flags.positions) positions.emplace(*flags.positions);
  }

  std::optional<OutputFile> report, positions;
};

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

// Generates the answer to a prompt that has been fed. With `shows_text` the text is printed as it is generated.
GenerationResult answer_prompt(Session& session, const RunFlags& flags, const SamplingOptions& sampling,
                               bool shows_text, const Interrupt& interrupt) {
  Sampler sampler = make_sampler(session.model(), sampling, session);
  if (flags.verbose) std::fprintf(stderr, "seed %u\n", sampler.seed());
  GenerationResult answer =
      generate(session, sampler,
               {.max_tokens = flags.max_tokens,
                .ignore_end = flags.ignore_eos,
                .feed_last = false,
                .is_cancelled = [&] { return interrupt.requested(); }},
               [&](const GenerationStep& step) { return !shows_text || write_output(step.text); });
  const bool ends_line = answer.text.empty() || answer.text.ends_with('\n');
  if (shows_text && !ends_line && ranks() == nullptr && isatty(STDOUT_FILENO) == 1) {
    write_output("\n");
  }
  return answer;
}

void explain(FinishReason reason, std::size_t n_tokens) {
  if (reason == FinishReason::kContextFull) {
    std::fprintf(stderr, "the context is full after %s generated tokens: -c sets its size\n",
                 count_text(static_cast<std::int64_t>(n_tokens)).c_str());
  } else if (reason == FinishReason::kCancelled) {
    std::fputs("interrupted\n", stderr);
  }
}

// Prints why the answer ended, and the statistics.
void print_statistics(const RunReport& report, FinishReason reason, bool verbose) {
  // A reader that closed the pipe has seen enough, of the statistics as well.
  if (reason == FinishReason::kStopped) return;
  explain(reason, report.token_ids.size());
  std::fprintf(stderr, "\n%s", run_report_text(report).c_str());
  if (verbose) std::fputs(kept_entries_text(report.statistics).c_str(), stderr);
}

// Writes what the flags ask for. A script takes a file for a whole answer, so an interrupted run writes none.
void write_results(const RunReport& report, const Session& session, const RunFiles& files, bool is_interrupted) {
  const auto takes = [&](const std::optional<OutputFile>& file) {
    return file && (!is_interrupted || file->is_stdout());
  };
  if (takes(files.report)) files.report->write(run_report_json(report));
  if (takes(files.positions)) files.positions->write(positions_json(session, session.model()->info()));
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
  const RunFiles files(flags);
  PromptSource source(flags.prompt);

  const Stopwatch loading;
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  const std::shared_ptr<Engine> engine = create_engine(model, engine_settings);
  RunReport report;
  report.load_s = loading.seconds();
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
  const auto prefill_start = std::chrono::steady_clock::now();
  GenerationResult answer;
  answer.reason = FinishReason::kCancelled;
  const bool fed = feed_prompt(session, tokens.context, FeedMode::kCut, interrupt) &&
                   (tokens.question.empty() || feed_prompt(session, tokens.question, FeedMode::kAppend, interrupt));
  if (fed) {
    const bool shows_text = !files.report || !files.report->is_stdout();
    answer = answer_prompt(session, flags, sampling, shows_text, interrupt);
  }
  if (!answer.tokens.empty()) {
    report.ttft_s = std::chrono::duration<double>(answer.first_token_at - prefill_start).count();
  }

  report.statistics = session.statistics();
  report.rss_peak_bytes = rss_peak_bytes();
  if (ranks() != nullptr) report.ranks = engine->memory_of_ranks();
  report.text = std::move(answer.text);
  report.token_ids = std::move(answer.tokens);
  print_statistics(report, answer.reason, flags.verbose);
  const bool is_interrupted = answer.reason == FinishReason::kCancelled;
  write_results(report, session, files, is_interrupted);
  return is_interrupted ? kInterruptedExitCode : 0;
}

}  // namespace winnow::cli
