// winnow chat: messages from the terminal or a pipe, one a line.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/nearest_name.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/line_input.h"
#include "cli/model_flags.h"
#include "cli/prompt_source.h"
#include "cli/sampling_flags.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  std::optional<std::string> file;
  std::string system;
  int max_tokens = -1;
  SamplingFlags sampling;
  CacheFlags cache;
  bool verbose = false;
};

constexpr const char* kExamples =
    "  winnow chat\n"
    "  winnow chat -f contract.txt --kv-evict snapkv --kv-budget 1024\n"
    "  printf 'Hello!\\nWhat did I say?\\n' | winnow chat --temp 0\n";

constexpr const char* kChatHelp =
    "  /stats       tokens, speed and memory so far\n"
    "  /clear       start again\n"
    "  /save FILE   save the conversation with its cache\n"
    "  /load FILE   go on with a saved one\n"
    "  /quit        leave (or Ctrl-C, or the end of the input)\n"
    "A line that ends in \\ goes on in the next. Ctrl-C stops an answer.\n";

bool parse_flags(const Arguments& arguments, ChatFlags& flags) {
  CommandLine line(
      "winnow chat", "[flags]",
      "Talks with a model in the terminal, one message a line; messages can be piped in as well. /help shows "
      "what else can be typed. Give --kv-budget in tokens: a share of a short first message is next to "
      "nothing.",
      kExamples);
  line.group("Model");
  add_model_flag(line, flags.model);
  add_engine_flags(line, flags.model);
  line.group("Prompt");
  line.text("--system", "TEXT", flags.system, "system message");
  line.text("-f,--file", "FILE", flags.file, "a document to talk about; it is compressed before the first message");
  line.group("Generation");
  line.integer("-n,--predict", flags.max_tokens, -1, "most tokens of an answer (default: -1, until the model ends)");
  add_sampling_flags(line, flags.sampling);
  line.group("KV cache");
  add_cache_flags(line, flags.cache);
  line.group("Output");
  line.flag("-v,--verbose", flags.verbose, "statistics after every answer");
  return line.parse(arguments);
}

// What a line that begins with / asks for. False: leave.
bool do_command(const std::string& line, Conversation& conversation) {
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
  } else if (name == "/save") {
    need_path();
    conversation.save(path);
    std::fprintf(stderr, "(saved to %s)\n", path.c_str());
  } else if (name == "/load") {
    need_path();
    conversation.load(path);
    std::fprintf(stderr, "(loaded %s)\n", path.c_str());
  } else {
    throw Error(ErrorCode::kNotFound,
                "there is no command " + name +
                    name_question(name, {"/help", "/stats", "/clear", "/save", "/load", "/quit"}) +
                    " /help lists them");
  }
  return true;
}

// False: leave.
bool do_turn(const std::string& line, Conversation& conversation, const Interrupt& interrupt, bool verbose) {
  if (line.starts_with('/')) return do_command(line, conversation);
  const StopReason stop = conversation.say(line, interrupt);
  if (stop == StopReason::kOutputClosed) return false;
  if (stop == StopReason::kInterrupted) std::fputs("(stopped)\n", stderr);
  if (stop == StopReason::kContextFull) std::fputs("(the context is full: /clear starts again)\n", stderr);
  if (verbose) std::fputs(run_report_text(conversation.report()).c_str(), stderr);
  return true;
}

// A message: a line, with those that follow while one ends in a backslash.
std::optional<std::string> next_message(LineInput& input, const Interrupt& interrupt, bool on_terminal) {
  if (on_terminal) std::fputs("> ", stderr);
  std::optional<std::string> line = input.next(interrupt);
  while (line && line->ends_with('\\')) {
    line->back() = '\n';
    if (on_terminal) std::fputs(". ", stderr);
    const std::optional<std::string> more = input.next(interrupt);
    if (!more) break;
    *line += *more;
  }
  if (interrupt.requested()) return std::nullopt;
  return line;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  ChatFlags flags;
  if (!parse_flags(arguments, flags)) return 0;
  if (flags.file && *flags.file == "-") {
    throw UsageError("-f - has no effect here: the standard input carries the messages");
  }
  ConversationOptions options;
  options.session = session_options(flags.cache);
  options.sampling = sampling_options(flags.sampling);
  options.max_tokens = flags.max_tokens;
  options.system = flags.system;
  if (flags.file) options.document = read_text_file(*flags.file, input::kText);
  const EngineOptions engine_settings = engine_options(flags.model);
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model));
  check_grammar(flags.sampling, model);
  warn_about_context(model->info(), flags.cache.n_ctx);
  Conversation conversation(Engine::create(model, engine_settings), options);

  const bool on_terminal = isatty(STDIN_FILENO) == 1;
  if (on_terminal) std::fprintf(stderr, "%s\n/help shows the commands\n", model->info().name.c_str());
  Interrupt interrupt;
  LineInput input;
  while (const std::optional<std::string> message = next_message(input, interrupt, on_terminal)) {
    if (message->empty()) continue;
    try {
      if (!do_turn(*message, conversation, interrupt, flags.verbose)) break;
    } catch (const Error& error) {
      // A person can try again; a script must not go on as if nothing had happened.
      if (!on_terminal) throw;
      std::fprintf(stderr, "error: %s\n", error.what());
    }
    interrupt.rearm();
  }
  if (on_terminal) std::fputs("\n", stderr);
  return 0;
}

}  // namespace winnow::cli
