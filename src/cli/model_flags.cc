#include "cli/model_flags.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/input_file.h"
#include "base/running_text.h"
#include "cache/page_pool.h"
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
  line.text("-m,--model", "FILE", flags.path,
            "model: a GGUF file, or the name of one fetched by `make model` (default: $WINNOW_MODEL, else the model "
            "fetched by `make`)");
}

void add_engine_flags(CommandLine& line, ModelFlags& flags) {
  line.integer("-t,--threads", flags.n_threads, 0, EngineOptions::kMostThreads,
               "number of threads (default: the number of physical cores)");
  line.integer("-b,--batch-size", flags.n_batch, 1, EngineOptions::kMostBatch,
               "prefill batch size: tokens sent through a layer at a time (default: 512, on a GPU 2048)");
  line.text("--prefill-weights", "TYPE", flags.prefill_weights,
            "number format of the prefill's matrix products: auto (int8; with AMX bf16 for long prompts), as-is (the "
            "file's types), int8, float (bf16 where the processor has it, else f32), bf16, f32 (default: " +
                flags.prefill_weights + ")");
  add_repack_flag(line, flags);
  line.text("--kv-limit", "SIZE", flags.kv_limit,
            "hard limit on the memory for KV pages, recurrent states and the prefill's staging buffer, e.g. 2GiB "
            "(default: none; in serve 80% of the free memory)");
}

void add_device_flags(CommandLine& line, ModelFlags& flags) {
  line.text("--device", "DEVICE", flags.device,
            "device to compute on: cpu, cuda or cuda:N (an NVIDIA GPU; `winnow info --devices` lists them), auto (a "
            "usable GPU if there is one, else cpu) (default: cpu)");
  line.integer("--gpu-layers,--n-gpu-layers", flags.device_layers, -1,
               "layers whose weights stay on the GPU; those of the others are copied there whenever they are used, "
               "which slows answers down more than long prompts; -1: as many as fit (default: -1)");
}

void add_repack_flag(CommandLine& line, ModelFlags& flags) {
  line.flag("--no-repack", flags.no_repack,
            "keep quantised weights in the file's layout, in memory shared between processes (default: interleave "
            "their rows, in this process's own memory, where that is faster)");
}

void add_pipeline_flag(CommandLine& line, ModelFlags& flags) {
  line.integers("--pipeline-layers", flags.pipeline_layers, 1,
                "under mpirun: first layer of each rank after rank 0 (default: ranges of about equal bytes)");
}

void add_template_flags(CommandLine& line, ModelFlags& flags) {
  line.text("--chat-template", "JINJA", flags.chat_template,
            "chat template to use instead of the model's: Jinja text, or chatml for the <|im_start|> format");
  line.text("--chat-template-file", "FILE", flags.chat_template_file, "read the chat template from a file");
  line.flag("--jinja", flags.jinja, "accepted for llama.cpp scripts; templates are always Jinja");
  line.exclude("--chat-template", "--chat-template-file");
}

bool has_template_flags(const ModelFlags& flags) { return flags.chat_template || flags.chat_template_file; }

ModelOptions model_options(const ModelFlags& flags) {
  if (flags.chat_template && flags.chat_template_file) {
    throw UsageError("--chat-template and --chat-template-file exclude each other: leave one out");
  }
  ModelOptions options;
  options.repack = !flags.no_repack;
  if (flags.chat_template) options.chat_template = *flags.chat_template;
  if (flags.chat_template_file) {
    options.chat_template =
        std::string(without_byte_order_mark(read_input(*flags.chat_template_file, input::kChatTemplate)));
  }
  if (has_template_flags(flags) && options.chat_template.empty()) {
    throw UsageError("the chat template is empty: give its text, or leave it out");
  }
  return options;
}

std::string model_path(const ModelFlags& flags) {
  if (flags.path) return path_of(*flags.path);
  if (const char* given = std::getenv("WINNOW_MODEL"); given != nullptr && *given != '\0') return path_of(given);
  if (std::string path = fetched_model(named_models().front()); !path.empty()) return path;
  throw Error(
      ErrorCode::kNotFound,
      "there is no model: give a GGUF file with -m FILE or the environment variable WINNOW_MODEL, or run `make` in "
      "the repository to fetch the default one");
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
  if (flags.device_layers > 0 && flags.device == "cpu") {
    throw UsageError("-ngl has no effect without a GPU: add --device cuda, or leave it out");
  }
  options.device = flags.device;
  options.device_layers = flags.device_layers;
  options.pipeline = ranks();
  options.is_led = ranks() != nullptr;
  options.pipeline_layers = flags.pipeline_layers;
  if (flags.kv_limit) {
    options.kv_bytes_limit = parse_byte_size("--kv-limit", *flags.kv_limit);
    if (options.kv_bytes_limit < PagePool::kSmallestLimit) {
      throw UsageError("--kv-limit takes a size of at least 4KiB, not '" + *flags.kv_limit +
                       "': leave it out for no limit");
    }
  }
  return options;
}

std::string streaming_note(const Engine& engine) {
  const int n = engine.n_streamed_layers(), n_layers = engine.model()->info().n_layer();
  if (n == 0) return "";
  return "the weights of " + std::to_string(n) + " of " + std::to_string(n_layers) + " layers do not stay on " +
         engine.device() + ": they are copied there whenever they are used, so answers take longer";
}

std::shared_ptr<Engine> create_engine(const std::shared_ptr<const Model>& model, const EngineOptions& options) {
  std::shared_ptr<Engine> engine = Engine::create(model, options);
  if (const std::string note = streaming_note(*engine); !note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  return engine;
}

int follow_first_rank(const ModelFlags& flags, const EngineOptions& options) {
  Engine::create(Model::load(model_path(flags), model_options(flags)), options)->follow();
  return 0;
}

}  // namespace winnow::cli
