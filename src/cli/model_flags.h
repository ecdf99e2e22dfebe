// Flags of every command that loads a model: which model it is, and how it computes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace winnow::cli {

struct ModelFlags {
  std::optional<std::string> path;       // -m
  int n_threads = 0;                     // -t
  int n_batch = 0;                       // -b; 0: the engine's default
  std::string device = "cpu";            // --device
  int device_layers = -1;                // -ngl; -1: as many as fit
  std::optional<std::string> kv_limit;   // --kv-limit
  std::string prefill_weights = "auto";  // --prefill-weights
  bool no_repack = false;                // --no-repack
  std::vector<int> pipeline_layers;      // --pipeline-layers
  std::optional<std::string> chat_template, chat_template_file;
  bool jinja = false;  // accepted without effect: templates are always Jinja
};

// Adds only -m.
void add_model_flag(CommandLine& line, ModelFlags& flags);
// Adds -t, -b, --kv-limit, --prefill-weights and --no-repack.
void add_engine_flags(CommandLine& line, ModelFlags& flags);
// Adds --device and -ngl.
void add_device_flags(CommandLine& line, ModelFlags& flags);
void add_repack_flag(CommandLine& line, ModelFlags& flags);
// For commands that mpirun may share among ranks.
void add_pipeline_flag(CommandLine& line, ModelFlags& flags);

// Adds --chat-template, --chat-template-file and --jinja.
void add_template_flags(CommandLine& line, ModelFlags& flags);
bool has_template_flags(const ModelFlags& flags);

// Returns the path of -m, else of WINNOW_MODEL (both may be the name of a model that was fetched), else of the default
// model if it exists. Throws Error(kNotFound) that says how to get one.
std::string model_path(const ModelFlags& flags);

// Returns the chat template of the flags, and --no-repack. Throws UsageError for two templates or an empty one,
// Error(kIo).
ModelOptions model_options(const ModelFlags& flags);
// Returns the options of the engine. With ranks, rank 0 leads.
EngineOptions engine_options(const ModelFlags& flags);
// Returns a line about weights that do not stay on the engine's device; "" if all do.
std::string streaming_note(const Engine& engine);
// Creates an engine, and prints that note to the standard error.
std::shared_ptr<Engine> create_engine(const std::shared_ptr<const Model>& model, const EngineOptions& options);
// Runs a rank other than the first: loads the model and follows rank 0's engine, which has the same options. Returns
// the exit code.
int follow_first_rank(const ModelFlags& flags, const EngineOptions& options);

// Returns the bytes of a size such as "64MiB". Throws UsageError naming the flag.
std::size_t parse_byte_size(const std::string& flag, const std::string& text);

}  // namespace winnow::cli
