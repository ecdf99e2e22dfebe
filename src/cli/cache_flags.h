// Flags that say how the KV cache is stored and what of it is kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "winnow/session.h"

namespace winnow::cli {

struct CacheFlags {
  int n_ctx = 0;                      // -c, 0: the model's
  std::string key_type = "f16";       // -ctk
  std::string value_type = "f16";     // -ctv
  std::optional<std::string> evict;   // --kv-evict
  std::optional<std::string> budget;  // --kv-budget
  std::optional<int> window;          // --kv-window
  std::optional<int> sinks;           // --kv-sinks
  std::string prefill = "layer";      // --prefill
  std::optional<int> chunk;           // --prefill-chunk
  std::string decode_cut = "keep";    // --kv-decode
};

void add_type_flags(CommandLine& line, std::string& key_type, std::string& value_type);
void add_cache_flags(CommandLine& line, CacheFlags& flags);

// Parse the values of flags. They throw UsageError; parse_method also throws Error for a file that an option names.
EntryType parse_key_type(const std::string& name);    // of -ctk
EntryType parse_value_type(const std::string& name);  // of -ctv
EvictionOptions parse_method(const std::string& flag, const std::string& text);
Budget parse_budget(const std::string& flag, const std::string& text);

// Parse lists of these, in which none may occur twice, however it is written.
std::vector<EvictionOptions> parse_methods(const std::string& flag, const std::vector<std::string>& texts);
std::vector<Budget> parse_budgets(const std::string& flag, const std::vector<std::string>& texts);

// Throws UsageError for a budget of a loss (kl=0.02) with a method for which it cannot be measured.
void check_loss_budget(const std::string& flag, const EvictionOptions& method, const Budget& budget);

// Returns the session's options. Throws Error or UsageError for flags that contradict each other or have no effect,
// before any model is loaded.
SessionOptions session_options(const CacheFlags& flags);

// Returns the error for a method that evicts and has no budget.
UsageError missing_budget(const std::string& method);

// Returns a warning about a -c beyond the length that the model was trained on; nullopt for any other.
std::optional<std::string> context_warning(const ModelInfo& model, int n_ctx);

// Prints the same as a line on the standard error.
void warn_about_context(const ModelInfo& model, int n_ctx);

}  // namespace winnow::cli
