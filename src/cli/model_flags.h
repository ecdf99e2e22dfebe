// Flags of every command that loads a model: which one, and how it computes.
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
  std::optional<std::string> kv_limit;   // --kv-limit
  std::string prefill_weights = "auto";  // --prefill-weights
  bool no_repack = false;                // --no-repack
  std::vector<int> pipeline_layers;      // --pipeline-layers
  std::optional<std::string> chat_template, chat_template_file;
  bool jinja = false;  // accepted only: templates always are
};

// Adds only -m.
void add_model_flag(CommandLine& line, ModelFlags& flags);
// Adds -t, -b, --kv-limit, --prefill-weights, --no-repack and --pipeline-layers.
void add_engine_flags(CommandLine& line, ModelFlags& flags);
void add_device_flag(CommandLine& line, ModelFlags& flags);
void add_repack_flag(CommandLine& line, ModelFlags& flags);
void add_pipeline_flag(CommandLine& line, ModelFlags& flags);

// Adds --chat-template, --chat-template-file and --jinja.
void add_template_flags(CommandLine& line, ModelFlags& flags);
bool has_template_flags(const ModelFlags& flags);

// -m, else WINNOW_MODEL (both may be the name of a model that was fetched), else the default model if it is there.
// Throws Error(kNotFound) that says how to get one.
std::string model_path(const ModelFlags& flags);

// The chat template of the flags, and --no-repack. Throws UsageError for two of them, Error(kIo).
ModelOptions model_options(const ModelFlags& flags);
// With ranks rank 0 leads.
EngineOptions engine_options(const ModelFlags& flags);
// What a rank behind the first one does: it loads the model and follows rank 0's engine, which has the same options.
// Returns the exit code.
int follow_first_rank(const ModelFlags& flags, const EngineOptions& options);

// "64MiB" to bytes.
std::size_t parse_byte_size(const std::string& flag, const std::string& text);

}  // namespace winnow::cli
