#include "cli/analysis_input.h"

#include <cstdio>
#include <memory>
#include <span>
#include <utility>

#include "cli/cache_flags.h"
#include "cli/interrupt.h"
#include "cli/number_text.h"
#include "cli/progress_bar.h"
#include "engine/planned_cuts.h"
#include "eval/run/matrix.h"
#include "study/passages.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow::cli {

void add_analysis_flags(CommandLine& line, AnalysisFlags& flags) {
  line.group("Model");
  add_model_flag(line, flags.model);
  add_engine_flags(line, flags.model);
  line.group("Text");
  line.text("-p,--prompt", "TEXT", flags.prompt.text, "text to apply the methods to");
  line.text("-f,--file", "FILE", flags.prompt.file, "read the text from a file; - for standard input");
  line.exclude("--prompt", "--file");
  line.text("-q,--question", "TEXT", flags.question,
            "question about the text: continue the cut text with it and with the full cache's answer (default: with "
            "the text's own next tokens)");
  line.integer("--tokens", flags.n_tokens, 1,
               "number of tokens of the text to cut (default: all but the continuation)");
  line.integer("--offset", flags.offset, 0, "number of tokens to skip at the start of the text (default: 0)");
  line.integer("-n,--predict", flags.n_continuation, 2, "number of tokens of the continuation (default: 64)");
  line.flag("--no-chat", flags.no_chat, "with -q: do not apply the model's chat template");
  line.group("Methods");
  line.texts("--methods", "METHOD,..", '\0', flags.methods,
             "methods: METHOD[:option=value,...] as in --kv-evict (default: snapkv, ada-snapkv, critical-ada-snapkv, "
             "cake, lava)");
  line.texts("--budgets", "AMOUNT,..", ',', flags.budgets, "budgets of each method, e.g. 5%,512 (default: 20%)");
}

namespace {

// Returns the methods of lists as `winnow eval` takes them. Throws UsageError.
std::vector<EvictionOptions> methods_of(const std::vector<std::string>& lists) {
  std::vector<std::string> texts;
  for (const std::string& list : lists) {
    for (std::string& text : value_of("--methods", [&] { return eval::split_methods(list); })) {
      texts.push_back(std::move(text));
    }
  }
  if (texts.empty()) throw UsageError("--methods is empty: name a method, e.g. snapkv");
  return parse_methods("--methods", texts);
}

// The tokens [offset, offset + n) of the text, and those after them. Without n the context is all that is left but the
// continuation.
struct Passage {
  std::span<const Token> context, rest;
};

Passage find_passage(std::span<const Token> tokens, const AnalysisFlags& flags, std::size_t n_after) {
  const auto offset = static_cast<std::size_t>(flags.offset);
  const std::size_t n_left = tokens.size() - std::min(offset, tokens.size());
  const std::size_t n_wanted = flags.n_tokens ? static_cast<std::size_t>(*flags.n_tokens) + n_after : n_after + 1;
  if (n_left < n_wanted) {
    throw Error(ErrorCode::kInvalidArgument, "the text has " + count_text(static_cast<std::int64_t>(tokens.size())) +
                                                 " tokens, but " +
                                                 count_text(static_cast<std::int64_t>(n_wanted + offset)) +
                                                 " are needed: give more text, or lower --tokens, --offset or -n");
  }
  const std::size_t n = flags.n_tokens ? static_cast<std::size_t>(*flags.n_tokens) : n_left - n_after;
  return {tokens.subspan(offset, n), tokens.subspan(offset + n)};
}

// Returns as much of the text as can be needed, and a little more, which shows that a text is too long.
std::string read_text(const Model& model, const AnalysisFlags& flags, PromptSource& source) {
  const std::int64_t n_context = flags.n_tokens.value_or(model.info().n_ctx_train);
  return source.read_beginning(model, flags.offset + n_context + flags.n_continuation);
}

void take_text(const Model& model, const AnalysisFlags& flags, const std::string& text, AnalysisOptions& options) {
  const std::vector<Token> tokens = model.tokenize(text, false, false);
  if (!flags.question) {
    const auto n_after = static_cast<std::size_t>(flags.n_continuation);
    const Passage passage = find_passage(tokens, flags, n_after);
    options.context = model.tokenize("", true, false);  // the begin token of a model that has one
    options.context.insert(options.context.end(), passage.context.begin(), passage.context.end());
    options.continuation.assign(passage.rest.begin(), passage.rest.begin() + flags.n_continuation);
    return;
  }
  SplitPrompt prompt{passage_text(model, find_passage(tokens, flags, 0).context), "\n\n" + *flags.question};
  if (!flags.no_chat && model.has_chat_template()) prompt = split_chat(model, "", prompt.before, prompt.after);
  PromptTokens parts = tokenize(model, prompt);
  options.context = std::move(parts.context);
  options.question = std::move(parts.question);
  options.n_answer = flags.n_continuation;
}

}  // namespace

std::optional<Analysis> run_analysis(const AnalysisFlags& flags) {
  if (flags.no_chat && !flags.question) throw UsageError("--no-chat has no effect without -q QUESTION");
  if (flags.question && flags.question->empty()) throw UsageError("the question of -q is empty: ask something");
  AnalysisOptions options;
  const std::vector<Budget> budgets = parse_budgets("--budgets", flags.budgets);
  for (const EvictionOptions& method : methods_of(flags.methods)) {
    if (!method.evicts()) {
      throw UsageError("--methods: 'full' keeps everything, and the others are measured against it: leave it out");
    }
    for (const Budget& budget : budgets) {
      check_loss_budget("--budgets", method, budget);
      options.cuts.push_back({method, budget});
    }
  }
  PromptSource source(flags.prompt, "text");
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  take_text(*model, flags, read_text(*model, flags, source), options);
  const std::size_t n_all =
      options.context.size() + options.question.size() + static_cast<std::size_t>(flags.n_continuation);
  if (n_all > static_cast<std::size_t>(model->info().n_ctx_train)) {
    throw Error(ErrorCode::kContextFull,
                std::string("text and continuation have ") + (source.is_whole() ? "" : "at least ") +
                    count_text(static_cast<std::int64_t>(n_all)) + " tokens, more than the model's context of " +
                    count_text(model->info().n_ctx_train) + ": take a part with --tokens");
  }
  const std::shared_ptr<Engine> engine = Engine::create(model, engine_options(flags.model));
  std::vector<PlannedCut> planned;
  for (const AnalysedCut& cut : options.cuts) {
    planned.push_back(
        {{.eviction = cut.method, .budget = cut.budget}, static_cast<std::int32_t>(options.context.size())});
  }
  check_cuts(*engine, planned);
  const Interrupt interrupt;
  ProgressBar bar("analyze");
  options.on_progress = [&](double part) {
    bar.update(static_cast<std::int64_t>(part * 1000), 1000);
    return !interrupt.requested();
  };
  try {
    return analyse(engine, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
    std::fputs("interrupted\n", stderr);
    return std::nullopt;
  }
}

}  // namespace winnow::cli
