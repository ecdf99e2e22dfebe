#include "cli/cache_flags.h"

#include <cstdint>
#include <cstdio>

#include "eviction/cut/cut.h"
#include "eviction/options/same_method.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

constexpr int kDefaultChunk = 1024;

}  // namespace

void add_type_flags(CommandLine& line, std::string& key_type, std::string& value_type) {
  line.text("--cache-type-k", "TYPE", key_type, "storage type of keys: " + entry_type_names() + " (default: f16)");
  line.text("--cache-type-v", "TYPE", value_type, "storage type of values (default: f16)");
}

void add_cache_flags(CommandLine& line, CacheFlags& flags) {
  line.integer("-c,--ctx-size", flags.n_ctx, 0,
               "context size in tokens, for prompt and answer (default: 0, the model's)");
  add_type_flags(line, flags.key_type, flags.value_type);
  line.text("--kv-evict", "METHOD", flags.evict,
            "eviction method for the prompt's KV cache: METHOD[:option=value,...], see `winnow methods` (default: "
            "full, or auto with --kv-budget)");
  line.text("--kv-budget", "AMOUNT", flags.budget,
            "how much of the cache to keep: tokens per head (512), a share of the prompt (20%) or of its bytes in f16 "
            "(5%bytes), bytes (64MiB), or as little as keeps the mean KL to the full cache within so many nats per "
            "token (kl=0.02)");
  line.integer("--kv-window", flags.window, 1, "number of last tokens that are always kept (default: the method's)");
  line.integer("--kv-sinks", flags.sinks, 0,
               "number of first tokens (attention sinks) that are always kept (default: the method's)");
  line.text("--prefill", "ORDER", flags.prefill,
            "order of the prefill: layer, the whole prompt layer by layer; chunked, the prompt in chunks with a cut "
            "after each, for prompts of any length (default: layer)");
  line.integer("--prefill-chunk", flags.chunk, 1, "tokens per chunk of --prefill chunked (default: 1024)");
  line.text(
      "--kv-decode", "MODE", flags.decode_cut,
      "policy for entries added while generating: keep; cut:every=N (every N tokens, cut the cache back to the "
      "budget); cut:own (after every token, cut each head back to its size at the end of the prompt) (default: keep)");
  for (const char* name : {"--kv-budget", "--kv-window", "--kv-sinks", "--prefill", "--prefill-chunk", "--kv-decode"}) {
    line.yields(name, [&] { return flags.evict == "full"; });
  }
}

namespace {

// Returns whether the text of a method names the option: "snapkv:window=5".
bool names_option(const std::string& method, const std::string& option) {
  return method.find(":" + option + "=") != std::string::npos || method.find("," + option + "=") != std::string::npos;
}

void set_decode_cut(SessionOptions& options, const std::string& mode) {
  constexpr std::string_view kEvery = "cut:every=";
  if (mode == "keep") return;
  if (mode == "cut" || mode.starts_with(kEvery)) {
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    if (mode == "cut") return;
    options.cut_every = parse_integer("--kv-decode cut:every", mode.substr(kEvery.size()), 1);
    return;
  } else if (mode == "cut:own") {
    options.decode_cut = SessionOptions::DecodeCut::kOwn;
    return;
  }
  throw UsageError("--kv-decode takes keep, cut, cut:every=N (N at least 1) or cut:own, not '" + mode + "'");
}

}  // namespace

EntryType parse_key_type(const std::string& name) {
  return value_of("-ctk", [&] { return parse_entry_type(name); });
}

EntryType parse_value_type(const std::string& name) {
  return value_of("-ctv", [&] { return parse_entry_type(name); });
}

EvictionOptions parse_method(const std::string& flag, const std::string& text) {
  return value_of(flag, [&] { return EvictionOptions::parse(text); });
}

Budget parse_budget(const std::string& flag, const std::string& text) {
  return value_of(flag, [&] { return Budget::parse(text); });
}

std::vector<EvictionOptions> parse_methods(const std::string& flag, const std::vector<std::string>& texts) {
  std::vector<EvictionOptions> methods;
  for (const std::string& text : texts) {
    const EvictionOptions method = parse_method(flag, text);
    for (std::size_t i = 0; i < methods.size(); ++i) {
      if (!is_same_method(method, methods[i])) continue;
      throw UsageError(flag + ": " +
                       (text == texts[i]
                            ? "'" + text + "' is given twice: name it once"
                            : "'" + texts[i] + "' and '" + text + "' are the same method: name one of them"));
    }
    methods.push_back(method);
  }
  return methods;
}

std::vector<Budget> parse_budgets(const std::string& flag, const std::vector<std::string>& texts) {
  std::vector<Budget> budgets;
  for (const std::string& text : texts) {
    const Budget budget = parse_budget(flag, text);
    for (const Budget& other : budgets) {
      if (budget.unit != other.unit || budget.amount != other.amount) continue;
      throw UsageError(flag + ": the budget " + budget.text() + " is given twice: name it once");
    }
    budgets.push_back(budget);
  }
  return budgets;
}

void check_loss_budget(const std::string& flag, const EvictionOptions& method, const Budget& budget) {
  try {
    check_loss_is_measurable(method, budget);
  } catch (const Error& error) {
    throw UsageError(flag + ": " + error.what());
  }
}

UsageError missing_budget(const std::string& method) {
  return UsageError("--kv-evict " + method + " needs to know how much to keep, e.g. --kv-budget 20% (of the prompt), " +
                    "--kv-budget 5%bytes, --kv-budget 512 (tokens per head), --kv-budget 64MiB or --kv-budget kl=0.02");
}

SessionOptions session_options(const CacheFlags& flags) {
  SessionOptions options;
  options.n_ctx = flags.n_ctx;
  options.key_type = parse_key_type(flags.key_type);
  options.value_type = parse_value_type(flags.value_type);
  const bool chunked = flags.prefill == "chunked";
  if (!chunked && flags.prefill != "layer") {
    throw UsageError("--prefill takes layer or chunked, not '" + flags.prefill + "'");
  }
  if (flags.chunk && !chunked) throw UsageError("--prefill-chunk has no effect without --prefill chunked");
  if (chunked) options.prefill_chunk = flags.chunk.value_or(kDefaultChunk);
  if (flags.evict) {
    options.eviction = parse_method("--kv-evict", *flags.evict);
  } else if (flags.budget) {
    options.eviction = EvictionOptions::parse("auto");
  }
  if (!options.eviction.evicts()) {
    for (const auto& [name, given] :
         {std::pair{"--kv-budget", flags.budget.has_value()}, std::pair{"--kv-window", flags.window.has_value()},
          std::pair{"--kv-sinks", flags.sinks.has_value()}, std::pair{"--prefill chunked", chunked},
          std::pair{"--kv-decode", flags.decode_cut != "keep"}}) {
      if (given) {
        throw UsageError(std::string(name) + " has no effect on the full cache: choose what to keep as well, e.g. " +
                         "--kv-evict snapkv --kv-budget 20%");
      }
    }
    return options;
  }
  const auto set = [&](const char* flag, const char* option, const std::optional<int>& value) {
    if (!value) return;
    const std::string given = options.eviction.get(option);
    if (flags.evict && names_option(*flags.evict, option) && given != std::to_string(*value)) {
      throw UsageError(std::string(flag) + " and " + option + "=" + given +
                       " of --kv-evict contradict each other: use " + "one of them");
    }
    value_of(flag, [&] {
      options.eviction.set(option, std::to_string(*value));
      options.eviction.validate();
    });
  };
  set("--kv-window", "window", flags.window);
  set("--kv-sinks", "sinks", flags.sinks);
  set_decode_cut(options, flags.decode_cut);
  if (!flags.budget) throw missing_budget(*flags.evict);
  options.budget = parse_budget("--kv-budget", *flags.budget);
  check_loss_budget("--kv-budget", options.eviction, *options.budget);
  return options;
}

std::optional<std::string> context_warning(const ModelInfo& model, int n_ctx) {
  if (n_ctx <= model.n_ctx_train) return std::nullopt;
  return "-c " + std::to_string(n_ctx) + " is beyond the " + std::to_string(model.n_ctx_train) +
         " tokens that the model was trained on: text past those is likely nonsense. No flag stretches its RoPE; a "
         "model file made for longer contexts has its own scaling";
}

void warn_about_context(const ModelInfo& model, int n_ctx) {
  if (const auto warning = context_warning(model, n_ctx)) std::fprintf(stderr, "warning: %s\n", warning->c_str());
}

}  // namespace winnow::cli
