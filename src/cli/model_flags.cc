#include "cli/model_flags.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/input_file.h"
#include "cli/named_models.h"
#include "cli/ranks.h"
#include "device/devices.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

// Returns the letters and digits of a name, in lower case.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) plain += static_cast<char>(std::tolower(c));
  }
  return plain;
}

// Returns the file in models/ of the current folder or of the repository that the tool was built in (it is in
// build/bin), or "" if there is none.
std::string fetched_model(const NamedModel& model) {
  const fs::path file = fs::path("models") / model.file;
  std::error_code ignored;
  if (fs::exists(file, ignored)) return file.string();
  const fs::path tool = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path beside = tool.parent_path() / "../.." / file;
  return !tool.empty() && fs::exists(beside, ignored) ? beside.lexically_normal().string() : "";
}

// Returns the path for the value of -m or WINNOW_MODEL: a file or, if there is no such file, the name of a model that
// was fetched.
std::string path_of(const std::string& given) {
  std::error_code ignored;
  if (fs::exists(given, ignored)) return given;
  for (const NamedModel& model : named_models()) {
    if (plain_name(given) != plain_name(model.name)) continue;
    if (std::string path = fetched_model(model); !path.empty()) return path;
    throw Error(ErrorCode::kNotFound, "there is no models/" + std::string(model.file) +
                                          ": `make model MODEL=" + model.name + "` in the repository fetches it");
  }
  return given;
}

}  // namespace

void add_model_flag(CommandLine& line, ModelFlags& flags) {
  line.text(
      "-m,--model", "FILE", flags.path,
      "model, a GGUF file or the name of one that `make model` fetched (default: the environment's WINNOW_MODEL, else "
      "the model that `make` fetches)");
}

void add_engine_flags(CommandLine& line, ModelFlags& flags) {
  line.integer("-t,--threads", flags.n_threads, 0, "threads (default: the physical cores)");
  line.integer("-b,--batch-size", flags.n_batch, 1,
               "tokens that pass a layer at a time in the prefill (default: 512, on a GPU 2048)");
  line.text("--prefill-weights", "TYPE", flags.prefill_weights,
            "numbers that a prompt is multiplied in: auto (int8; with AMX bf16 for long prompts), as-is (the file's "
            "types), int8, float (bf16 where the processor has it, else f32), bf16, f32 "
            "(default: " +
                flags.prefill_weights + ")");
  add_repack_flag(line, flags);
  line.text("--kv-limit", "SIZE", flags.kv_limit,
            "hard limit of the memory for KV pages, recurrent states and the prefill's staging buffer, e.g. 2GiB "
            "(default: none)");
  add_pipeline_flag(line, flags);
}

void add_device_flag(CommandLine& line, ModelFlags& flags) {
  line.text("--device", "DEVICE", flags.device,
            "what computes: cpu, cuda (or cuda:N, an NVIDIA GPU; `winnow info --devices` lists them), auto (a GPU if "
            "there is one to be used, else cpu) (default: cpu)");
}

void add_repack_flag(CommandLine& line, ModelFlags& flags) {
  line.flag("--no-repack", flags.no_repack,
            "leaves quantised weights as the file has them, in memory that processes share (default: where that is "
            "faster their rows are interleaved, in memory of this process)");
}

void add_pipeline_flag(CommandLine& line, ModelFlags& flags) {
  line.integers("--pipeline-layers", flags.pipeline_layers, 1,
                "with mpirun: the first layer of every rank but the first one (default: ranges of about equal bytes)");
}

void add_template_flags(CommandLine& line, ModelFlags& flags) {
  line.text("--chat-template", "JINJA", flags.chat_template,
            "a chat template instead of the model file's: its text, or chatml for that of <|im_start|>");
  line.text("--chat-template-file", "FILE", flags.chat_template_file, "a chat template from a file");
  line.flag("--jinja", flags.jinja,
            "has chat templates read as Jinja, as they always are; for scripts made for llama.cpp");
}

bool has_template_flags(const ModelFlags& flags) { return flags.chat_template || flags.chat_template_file; }

ModelOptions model_options(const ModelFlags& flags) {
  if (flags.chat_template && flags.chat_template_file) {
    throw UsageError("--chat-template and --chat-template-file exclude each other: leave one out");
  }
  ModelOptions options;
  options.repack = !flags.no_repack;
  if (flags.chat_template) options.chat_template = *flags.chat_template;
  if (flags.chat_template_file) options.chat_template = read_input(*flags.chat_template_file, input::kChatTemplate);
  if (has_template_flags(flags) && options.chat_template.empty()) throw UsageError("the chat template is empty");
  return options;
}

std::string model_path(const ModelFlags& flags) {
  if (flags.path) return path_of(*flags.path);
  if (const char* given = std::getenv("WINNOW_MODEL"); given != nullptr && *given != '\0') return path_of(given);
  if (std::string path = fetched_model(named_models().front()); !path.empty()) return path;
  throw Error(ErrorCode::kNotFound,
              "there is no model: give a GGUF file with -m FILE or in the environment's WINNOW_MODEL, or let `make` in "
              "the repository fetch the default one");
}

std::size_t parse_byte_size(const std::string& flag, const std::string& text) {
  const char* const hint = " takes a size with its unit, e.g. 512MiB or 2GiB, not '";
  Budget size;
  try {
    size = Budget::parse(text);
  } catch (const Error&) {
    throw UsageError(flag + hint + text + "'");
  }
  if (size.unit != Budget::Unit::kBytes) throw UsageError(flag + hint + text + "'");
  return static_cast<std::size_t>(size.amount);
}

EngineOptions engine_options(const ModelFlags& flags) {
  EngineOptions options;
  options.n_threads = flags.n_threads;
  options.n_batch = flags.n_batch;
  options.prefill_weights = value_of("--prefill-weights", [&] { return parse_prefill_weights(flags.prefill_weights); });
  value_of("--device", [&] {
    device::check_device_name(flags.device);
    return 0;
  });
  options.device = flags.device;
  options.pipeline = ranks();
  options.is_led = ranks() != nullptr;
  options.pipeline_layers = flags.pipeline_layers;
  if (flags.kv_limit) options.kv_bytes_limit = parse_byte_size("--kv-limit", *flags.kv_limit);
  return options;
}

int follow_first_rank(const ModelFlags& flags, const EngineOptions& options) {
  Engine::create(Model::load(model_path(flags), model_options(flags)), options)->follow();
  return 0;
}

}  // namespace winnow::cli
