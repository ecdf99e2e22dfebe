// winnow chat: messages from the terminal or a pipe, one a line.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/nearest_name.h"
#include "base/stopwatch.h"
#include "cli/cache_flags.h"
#include "cli/chat_history.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"
#include "cli/line_input.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/prompt_source.h"
#include "cli/ranks.h"
#include "cli/sampling_flags.h"
#include "sampling/longest_token.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  std::optional<std::string> file;
  bool history = false;
  std::string system;
  int max_tokens = -1;
  SamplingFlags sampling;
  CacheFlags cache;
  std::optional<int> min_kv_tokens;
  bool verbose = false;
};

constexpr const char* kChatExamples =
    "  winnow chat\n"
    "  winnow chat -f contract.txt --kv-evict snapkv --kv-budget 1024\n"
    "  printf 'Hello!\\nWhat did I say?\\n' | winnow chat --temp 0\n";

constexpr const char* kChatHelp =
    "  /stats       tokens, speed and memory so far\n"
    "  /clear       start over\n"
    "  /save FILE   save the conversation with its cache\n"
    "  /load FILE   continue a saved conversation\n"
    "  /quit        leave (or Ctrl-D, or Ctrl-C twice)\n"
    "End a line with \\ to continue it on the next. Ctrl-C stops an answer, or clears\n"
    "the line being typed.\n";

bool parse_flags(const Arguments& arguments, ChatFlags& flags) {
  CommandLine line(
      "winnow chat", "[flags]",
      "Chats with a model in the terminal, one message per line; messages can also be piped in. Type /help for the "
      "commands. Give --kv-budget in tokens: a share of a short first message is next to nothing.",
      kChatExamples);
  line.group("Model");
  add_model_flag(line, flags.model);
  add_template_flags(line, flags.model);
  add_engine_flags(line, flags.model);
  add_pipeline_flag(line, flags.model);
  add_device_flags(line, flags.model);
  line.group("Prompt");
  line.text("--system", "TEXT", flags.system, "system message");
  line.text("-f,--file", "FILE", flags.file, "document to talk about, read and compressed before the first message");
  line.flag("--history", flags.history,
            "keep typed lines from one chat to the next, in a file that only you can read: "
            "$XDG_STATE_HOME/winnow/chat-history");
  line.group("Generation");
  line.integer("-n,--predict", flags.max_tokens, -1,
               "maximum number of tokens per answer (default: -1, until the model stops)");
  add_sampling_flags(line, flags.sampling);
  line.group("KV cache");
  add_cache_flags(line, flags.cache);
  line.integer("--kv-min", flags.min_kv_tokens, 0,
               "keep conversations of fewer tokens whole (default: 256 if the budget is a part of the conversation)");
  line.group("Output");
  line.flag("-v,--verbose", flags.verbose, "print statistics after each answer");
  return line.parse(arguments);
}

// Runs a command, which is a line that begins with /. Returns false to leave.
bool do_command(std::string line, Conversation& conversation, const Interrupt& interrupt) {
  line.erase(line.find_last_not_of(" \t") + 1);  // a line begins with /
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string path = space == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', space));
  const auto need_path = [&] {
    if (path.empty()) throw Error(ErrorCode::kInvalidArgument, name + " needs a file, e.g. " + name + " talk.winnow");
  };
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/help") {
    std::fputs(kChatHelp, stderr);
  } else if (name == "/stats") {
    std::fputs(run_report_text(conversation.report()).c_str(), stderr);
  } else if (name == "/clear") {
    conversation.clear();
    std::fputs("(cleared)\n", stderr);
    conversation.read_document(interrupt);
  } else if (name == "/save") {
    need_path();
    conversation.save(path);
    std::fprintf(stderr, "(saved to %s)\n", path.c_str());
  } else if (name == "/load") {
    need_path();
    const std::string settings = conversation.load(path);
    std::fprintf(stderr, "(loaded %s%s)\n", path.c_str(),
                 settings.empty() ? "" : (", which goes on with its own settings: " + settings).c_str());
  } else {
    throw Error(ErrorCode::kNotFound,
                "there is no command " + name +
                    name_question(name, {"/help", "/stats", "/clear", "/save", "/load", "/quit"}) +
                    " /help lists them");
  }
  return true;
}

// Handles a line. Returns false to leave.
bool do_turn(const std::string& line, Conversation& conversation, const Interrupt& interrupt, bool verbose) {
  if (line.starts_with('/')) return do_command(line, conversation, interrupt);
  const FinishReason stop = conversation.say(line, interrupt);
  if (stop == FinishReason::kStopped) return false;
  if (stop == FinishReason::kCancelled) std::fputs("(stopped)\n", stderr);
  if (stop == FinishReason::kContextFull) std::fputs("(the context is full: /clear starts again)\n", stderr);
  if (verbose) std::fputs(run_report_text(conversation.report()).c_str(), stderr);
  return true;
}

// Returns a message: a line, with those that follow while one ends in a backslash.
InputLine next_message(LineSource& lines, const Interrupt& interrupt) {
  InputLine message = lines.next("> ", interrupt);
  while (message.kind == InputLine::Kind::kText && message.text.ends_with('\\')) {
    message.text.back() = '\n';
    const InputLine more = lines.next(". ", interrupt);
    if (more.kind == InputLine::Kind::kEnd) break;
    if (more.kind == InputLine::Kind::kInterrupted) return {.kind = more.kind, .had_text = true};
    message.text += more.text;
  }
  if (message.kind == InputLine::Kind::kText && interrupt.requested()) {
    return {.kind = InputLine::Kind::kInterrupted, .had_text = true};
  }
  return message;
}

// Talks until the input ends or the user leaves. Returns the exit code.
int talk(Conversation& conversation, LineSource& lines, Interrupt& interrupt, bool on_terminal, bool verbose) {
  bool was_asked = false;  // Ctrl-C was the last input
  while (true) {
    const InputLine message = next_message(lines, interrupt);
    if (message.kind == InputLine::Kind::kEnd) break;
    if (message.kind == InputLine::Kind::kInterrupted) {
      if (!on_terminal || (was_asked && !message.had_text)) return kInterruptedExitCode;
      was_asked = true;
      interrupt.rearm();  // before the message, since another one counts from then on
      std::fputs("(Ctrl-C again or Ctrl-D leaves)\n", stderr);
      continue;
    }
    was_asked = false;
    if (message.text.empty()) continue;
    try {
      if (!do_turn(message.text, conversation, interrupt, verbose)) break;
    } catch (const Error& error) {
      // A person can try again; a script must not go on as if nothing had happened.
      if (!on_terminal) throw;
      std::fprintf(stderr, "error: %s\n", error.what());
    }
    // A script must not go on after Ctrl-C either.
    if (!on_terminal && interrupt.requested()) return kInterruptedExitCode;
    interrupt.rearm();
  }
  return 0;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  ChatFlags flags;
  if (!parse_flags(arguments, flags)) return 0;
  if (flags.file && *flags.file == "-") {
    throw UsageError("-f - has no effect here: the standard input carries the messages");
  }
  const EngineOptions engine_settings = engine_options(flags.model);
  if (!speaks()) return follow_first_rank(flags.model, engine_settings);
  ConversationOptions options;
  options.session = session_options(flags.cache);
  options.session.question_aware = !flags.file;  // a document is cut before the first message
  if (flags.min_kv_tokens && !options.session.budget) {
    throw UsageError("--kv-min has no effect on the full cache: choose what to keep as well, e.g. --kv-budget 10%");
  }
  options.min_kv_tokens = flags.min_kv_tokens;
  check_penalty_range(flags.sampling);
  options.sampling = sampling_options(flags.sampling);
  options.max_tokens = flags.max_tokens;
  options.system = flags.system;
  std::optional<PromptSource> document;
  if (flags.file) document.emplace(PromptFlags{.file = flags.file}, "document");
  // Under mpirun lines come through its pipe.
  const bool edits_lines = ranks() == nullptr && can_edit_lines();
  if (flags.history && !edits_lines) {
    throw UsageError("--history has no effect where lines are not edited on a terminal: leave it out");
  }
  std::optional<ChatHistory> history;
  if (flags.history) history.emplace(default_history_path());
  const Stopwatch loading;
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  check_with_model(flags.sampling, model);
  warn_about_context(model->info(), flags.cache.n_ctx);
  const std::int32_t n_ctx = flags.cache.n_ctx > 0 ? flags.cache.n_ctx : model->info().n_ctx_train;
  if (document) options.document = document->read(*model, n_ctx);
  const bool on_terminal = ranks() == nullptr && isatty(STDIN_FILENO) == 1;
  const std::size_t most_bytes = longest_token_bytes(*model) * static_cast<std::size_t>(n_ctx);
  const std::unique_ptr<LineSource> lines =
      edits_lines ? make_line_editor(history ? &*history : nullptr) : make_line_reader(on_terminal, most_bytes);
  const std::shared_ptr<Engine> engine = create_engine(model, engine_settings);
  options.load_s = loading.seconds();
  Conversation conversation(engine, options);

  if (on_terminal) std::fprintf(stderr, "%s\n/help shows the commands\n", model->info().name.c_str());
  constexpr int kPatience = 3;  // an answer takes a moment to stop, and two Ctrl-C must not lose a conversation
  Interrupt interrupt(on_terminal ? kPatience : 2);
  if (!conversation.read_document(interrupt)) {
    std::fputs("interrupted\n", stderr);
    return kInterruptedExitCode;
  }
  if (on_terminal && document) {
    std::fprintf(stderr, "(%s: %s tokens)\n", flags.file->c_str(), count_text(conversation.n_tokens()).c_str());
  }
  const int exit_code = talk(conversation, *lines, interrupt, on_terminal, flags.verbose);
  if (on_terminal && exit_code == 0) std::fputs("\n", stderr);
  return exit_code;
}

}  // namespace winnow::cli
