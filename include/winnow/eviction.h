// What to keep of a KV cache: a budget and a method. A method is never one opaque class: it is a scorer, a layer
// allocator, a head allocator and a selector, and a named preset puts four of them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Bytes of an entry, a mean over the heads that methods cut where layers differ.
struct EntryBytes {
  double stored;    // key and value in the cache's types, and the position
  double f16_rows;  // key and value in f16
  // What a head takes beside its entries: where rows are coded its first four are not.
  double head_extra = 0;
};

// How much to keep, in one of five units. All become one exact total T of entries over the KV heads
// of all layers that methods cut; layers with a sliding window are not among them and hold what their window sees.
struct Budget {
  enum class Unit { kTokens, kFraction, kBytes, kByteFraction, kLoss };
  Unit unit = Unit::kFraction;
  // Tokens per KV head on average; kept fraction of the prompt's entries in (0, 1]; bytes of entries; bytes of entries
  // as a fraction in (0, 1] of what the prompt's keys and values take in f16, whatever types the cache has; the mean KL
  // to the full cache, in nats a token, that the smallest cut may be expected to cost (LossPromise).
  double amount = 1.0;

  // Whether it is a part of the prompt: what it comes to is then known with the prompt alone.
  bool is_relative() const { return unit != Unit::kTokens && unit != Unit::kBytes; }

  // The most that it may come to: itself, and for a loss the largest part of the bytes that is tried.
  Budget most() const;

  // "512", "20%", "64MiB" (also B, KiB, GiB, KB, MB, GB), "5%bytes", "kl=0.02". Throws Error(kInvalidArgument) for
  // anything else, zero or less, and more than 100 %.
  static Budget parse(std::string_view text);
  std::string text() const;

  // The total T for a prompt of n_tokens tokens: tokens give B * n_heads, a fraction f gives round(f * N * n_heads),
  // halves up, bytes give floor((bytes - n_heads * entry.head_extra) / entry.stored), and a fraction f of the bytes is
  // one of N * n_heads * entry.f16_rows bytes; of a loss that of most(). Capped at N * n_heads. n_heads: KV heads of
  // all layers that are cut.
  std::int64_t total_entries(std::int64_t n_tokens, std::int64_t n_heads, const EntryBytes& entry) const;
};

// What becomes of the values that stay: as they are, or refitted so that attention's output over them is nearest to
// that over all entries.
enum class Fit { kNone, kValues };
// In how many bits keys and values that stay are stored instead of f16: 8 are q8_0, 4 are r4, 3 are r3.
struct BitWidths {
  int keys = 0;
  int values = 0;

  bool operator==(const BitWidths&) const = default;
};
// The best entries may have more bits than the others.
struct Bits {
  enum class Rule { kOwn, kByBudget, kGiven };
  Rule rule = Rule::kOwn;  // the session's own types; by the size of the budget; the numbers below
  BitWidths all = {};      // of an entry
  BitWidths first = {};    // of the first part by rank, where that has more; else zero
  double first_part = 0;   // of all entries that stay, in (0, 1)

  bool operator==(const Bits&) const = default;
  bool is_mixed() const { return first.keys > 0; }

  // "own", "by-budget", "8", "4", "3", keys and values apart ("8/4"), "8:0.3,4": 0.3 of the entries in 8 bits, the
  // others in 4. Nothing for anything else.
  static std::optional<Bits> parse(std::string_view text);
  std::string text() const;

  // What `by-budget` comes to; for a loss 8 and 4 bits, whatever is tried, with the part of its most().
  Bits for_budget(const std::optional<Budget>& budget) const;
  // Of cuts that are tried for a loss: which part of what stays has the more bits under a budget of bytes.
  double finer_part(const Budget& budget) const;
};

// A calibrated LU-KV profile: which part of each head's entries to keep at a global kept ratio.
struct UtilityProfile {
  std::vector<int> heads;      // [n_layer] KV heads; 0: a layer that is not cut
  std::vector<double> ratios;  // [n_ratio] global kept ratios, ascending, in (0, 1)
  std::vector<double> kept;    // [n_ratio][heads of all layers] local kept ratios
  std::string model;           // model_text() of the model that it was calibrated on; empty: not checked
  std::string scorer;          // text form of the scorer's options; empty: not checked

  // How it was made, for people.
  std::string model_name;
  int n_samples = 0;
  int n_tokens = 0;        // of a sample's context
  int n_decode = 0;        // most tokens decoded after it
  std::uint64_t seed = 0;  // of the choice of samples
  std::string date;        // "2025-11-21", UTC
  std::string tool;        // version of winnow

  // JSON. Throws Error(kIo), or Error(kBadFile) with what is wrong.
  static UtilityProfile load(const std::string& path);
  void save(const std::string& path) const;

  // A ModelInfo::fingerprint as `model` has it.
  static std::string model_text(std::uint64_t fingerprint);

  // Folders with profiles that need not be named: the environment's WINNOW_PROFILES, share/winnow/profiles beside the
  // bin folder of the running program, profiles of the repository that it was built in, profiles of the working
  // directory. Some may not exist.
  static std::vector<std::string> folders();
  // The profile in them for a model and a scorer (EvictionOptions::scorer_text), null if there is none. Throws
  // Error(kBadFile) for a damaged file among them.
  static std::shared_ptr<const UtilityProfile> find(const std::string& model, const std::string& scorer);
};

// Importance of every KV head of a model, for headkv and duo-attention: any positive scale.
struct HeadImportance {
  // [n_layer][heads]: KV heads, or query heads (a group's are added up). Layers that are not cut are not read.
  std::vector<std::vector<double>> weight;

  // JSON as HeadKV publishes it: {"layer-head": [scores...], ...}, several scores of a head averaged; or as
  // DuoAttention does: a line for each layer, a number for each head. Throws Error(kIo), or Error(kBadFile) with what
  // is wrong.
  static HeadImportance load(const std::string& path);
};

// A method with its options. A preset fills it; the text form overrides.
struct EvictionOptions {
  std::string method = "full";  // the preset's name
  std::string scorer = "none";  // names of the registry
  std::string layers = "uniform";
  std::string heads = "uniform";
  std::string selector = "top-k";
  int window = 32;  // last tokens, always kept; half of the budget beside the sinks where it does not hold them
  int sinks = 0;    // first tokens, always kept
  Fit fit = Fit::kNone;
  Bits bits = {};
  // Of the options that the parts declare (option.h), those that are not the declared fallback, in the text form: set()
  // fills it.
  std::map<std::string, std::string, std::less<>> values;
  std::shared_ptr<const HeadImportance> importance;       // used instead of head-file if set
  std::shared_ptr<const UtilityProfile> utility_profile;  // used instead of profile if set

  // The value of an option that a part declares, for the part. Throw Error(kNotFound) for one that none declares.
  std::int64_t integer(std::string_view option) const;
  double number(std::string_view option) const;
  const std::string& text_of(std::string_view option) const;

  bool evicts() const { return method != "full"; }
  bool reads_head_file() const;  // whether any part does
  bool reads_profile() const;    // likewise

  // "METHOD[:option=value,...]", e.g. "snapkv:window=16,pool=avg,kernel=5"; "auto:fast" is auto-fast. Options: scorer,
  // layers, heads, selector (or select), window, sinks, fit, bits, and those that the parts declare
  // (eviction_options()). Throws Error(kNotFound) with the nearest name for an unknown method or option,
  // Error(kInvalidArgument) for a value out of range, an option that none of the parts uses, and a combination that
  // means nothing.
  static EvictionOptions parse(std::string_view text);

  // Sets one option by its name in the text form; checks the value's range, not the combination.
  void set(std::string_view option, std::string_view value);

  // An option's value in the text form. Throws Error(kNotFound).
  std::string get(std::string_view option) const;

  // Names of the options that the four parts read, window and sinks among them; none for a method that keeps all.
  std::vector<std::string> used_options() const;

  // What prefill must save or compute for the scores beyond the stored entries, a phrase for each; empty: nothing.
  std::vector<std::string> evidence() const;
  // The dearest of it in a few words, "nothing" to "the prompt again": what the choice costs beside the prefill.
  std::string cost() const;

  // Checks the combination, as parse does.
  void validate() const;

  // The shortest text form that parses to these options.
  std::string text() const;

  // The scorer with every option that its scores depend on: what a profile is calibrated for.
  std::string scorer_text() const;

  // Reads head-file and profile if the method uses them, they are named and not in memory yet; parse does it. Throws
  // Error.
  void load_files();

  // For a method that reads a profile: looks for one that fits model and scorer if none was given. Throws
  // Error(kNotFound) that says how to make one, Error(kInvalidArgument) for one of another model. Opening a session
  // does it.
  void find_profile(std::uint64_t model_fingerprint);
};

// A row of `winnow methods`.
struct MethodInfo {
  std::string name;
  std::string summary;  // one line
  std::string paper;    // short reference
  EvictionOptions options;
};

// All presets, in the order in which to show them: those that are built in, then those that were registered.
const std::deque<MethodInfo>& eviction_methods();
// One of them. Throws Error(kNotFound) with the nearest name.
const MethodInfo& find_method(std::string_view name);

// A row of the table of options.
struct OptionInfo {
  std::string name;
  std::string values;  // "mean | sum | max", "integer >= 0", ...
  std::string summary;
  std::string used_by;  // which parts read it
};
std::vector<OptionInfo> eviction_options();

}  // namespace winnow
