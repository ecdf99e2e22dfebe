// The description of an eviction: a budget (how much of a KV cache to keep) and a method (which entries). A method is
// never one opaque class: it is a scorer, a layer allocator, a head allocator and a selector, and a named preset puts
// four of them together.
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

// The bytes of an entry, a mean over the heads that methods cut where layers differ.
struct EntryBytes {
  double stored;    // key and value in the cache's types, and the position
  double f16_rows;  // key and value in f16
  // Bytes of a head besides its entries: its first four rows are not quantised, and so are larger than the others.
  double head_extra = 0;
};

// The part of the cache to keep, in one of five units. All become one exact total T of entries over the KV heads of all
// layers that methods cut. Layers with a sliding window are not among them and hold what their window sees.
struct Budget {
  enum class Unit { kTokens, kFraction, kBytes, kByteFraction, kLoss };
  Unit unit = Unit::kFraction;
  // The number, by unit.
  //   kTokens: tokens per KV head on average
  //   kFraction: kept fraction of the prompt's entries, in (0, 1]
  //   kBytes: bytes of entries
  //   kByteFraction: bytes of entries as a fraction in (0, 1] of those of the prompt's keys and values in f16, whatever
  //     types the cache has
  //   kLoss: mean KL to the full cache in nats a token that the smallest cut may be expected to cost (LossPromise)
  double amount = 1.0;

  // Returns true if the budget is a part of the prompt, so that its total depends on the prompt's length.
  bool is_relative() const { return unit != Unit::kTokens && unit != Unit::kBytes; }

  // Returns the largest budget that this one may become: itself, and for a loss the largest fraction of the bytes that
  // is tried.
  Budget most() const;

  // Reads "512", "20%", "64MiB" (also B, KiB, GiB, KB, MB, GB), "5%bytes" or "kl=0.02". Throws Error(kInvalidArgument)
  // for anything else, zero or less, and more than 100 %.
  static Budget parse(std::string_view text);
  // Throws Error(kInvalidArgument) unless the amount is one that parse() could have read, or a part of a token or byte.
  void validate() const;
  // Returns the text that parse() reads.
  std::string text() const;

  // Returns the total T for a prompt of N = n_tokens tokens and n_heads KV heads of all layers that are cut, N *
  // n_heads at most.
  //   kTokens: amount * n_heads
  //   kFraction: amount * N * n_heads, rounded to the nearest, halves up
  //   kBytes: floor((amount - n_heads * entry.head_extra) / entry.stored)
  //   kByteFraction: as kBytes, for amount * N * n_heads * entry.f16_rows bytes
  //   kLoss: the total of most()
  std::int64_t total_entries(std::int64_t n_tokens, std::int64_t n_heads, const EntryBytes& entry) const;
};

// The treatment of the values that a cut keeps. kNone: they stay as they are. kValues: they are refitted by least
// squares, so that attention's output over them is nearest to that over all entries.
enum class Fit { kNone, kValues };
// The bits a number in which kept keys and values are stored: 8 is q8_0, 4 is r4, 3 is r3.
struct BitWidths {
  int keys = 0;
  int values = 0;

  bool operator==(const BitWidths&) const = default;
};
// The choice of bit widths for kept entries; the best entries may have more bits than the others (mixed precision).
struct Bits {
  enum class Rule { kOwn, kByBudget, kGiven };
  Rule rule = Rule::kOwn;  // kOwn: the session's types; kByBudget: by the size of the budget; kGiven: the fields below
  BitWidths all = {};      // bits of every entry that is not among the best
  BitWidths high = {};     // bits of the best entries by score; zero: no entry has more than `all`
  double high_fraction = 0;  // fraction of the kept entries that are stored in `high`, in (0, 1)

  bool operator==(const Bits&) const = default;
  bool is_mixed() const { return high.keys > 0; }

  // Reads "own", "by-budget", "8", "4", "3", keys and values apart ("8/4"), or "8:0.3,4": 0.3 of the entries in 8 bits,
  // the others in 4. Returns nothing for any other text.
  static std::optional<Bits> parse(std::string_view text);
  // Returns the text that parse() reads.
  std::string text() const;

  // Returns the bit widths that kByBudget chooses for a budget, or this under another rule. Heads with rows of 128
  // numbers and more have fewer bits for more entries; `head_dim` is the size of the smallest head. For a budget of a
  // loss the bits are 8 and 4, with the fraction that most() has, whichever cuts are tried.
  Bits for_budget(const std::optional<Budget>& budget, int head_dim = 64) const;
  // Returns the fraction of the kept entries that has more bits in a cut to `budget`, a fraction of the bytes, that is
  // tried for a loss.
  double high_fraction_for(const Budget& budget) const;
};

// A calibrated LU-KV profile ("Predicting Future Utility"): the fraction of each head's entries to keep at a global
// kept ratio.
struct UtilityProfile {
  std::vector<int> heads;      // [n_layer] KV heads; 0: a layer that is not cut
  std::vector<double> ratios;  // [n_ratio] global kept ratios, ascending, in (0, 1)
  std::vector<double> kept;    // [n_ratio][heads of all layers] local kept ratios
  std::string model;           // model_text() of the model that it was calibrated on; empty: not checked
  std::string scorer;          // text form of the scorer's options; empty: not checked

  // The origin of the profile, for people.
  std::string model_name;
  int n_samples = 0;
  int n_tokens = 0;        // tokens of a sample's context
  int n_decode = 0;        // most tokens decoded after it
  std::uint64_t seed = 0;  // seed of the choice of samples
  std::string date;        // "2025-11-21", UTC
  std::string tool;        // version of winnow

  // Both read or write a JSON file. Throw Error(kIo), or Error(kBadFile) with the fault.
  static UtilityProfile load(const std::string& path);
  void save(const std::string& path) const;

  // Returns a ModelInfo::fingerprint in the form of the field `model`.
  static std::string model_text(std::uint64_t fingerprint);

  // Returns the folders that are searched for profiles: the environment's WINNOW_PROFILES, share/winnow/profiles next
  // to the bin folder of the running program, profiles/ of the repository that it was built in, profiles/ of the
  // working directory. Some may not exist.
  static std::vector<std::string> folders();
  // Returns the profile in these folders for a model and a scorer (EvictionOptions::scorer_text), null if there is
  // none. Throws Error(kBadFile) for a damaged file among them.
  static std::shared_ptr<const UtilityProfile> find(const std::string& model, const std::string& scorer);
};

// The importance of every KV head of a model, for headkv and duo-attention, on any positive scale.
struct HeadImportance {
  // [n_layer][n_kv_head], or [n_layer][n_head]: the query heads of a GQA group are then added up. Layers that are not
  // cut are not read.
  std::vector<std::vector<double>> weight;

  // Reads a file in one of two forms: JSON as HeadKV publishes it, {"layer-head": [scores...], ...}, with the scores of
  // a head averaged; or text as DuoAttention does, a line for each layer and a number for each head. Throws Error(kIo),
  // or Error(kBadFile) with the fault.
  static HeadImportance load(const std::string& path);
};

// A method with its options. A preset fills the fields, and options of the text form replace them.
struct EvictionOptions {
  std::string method = "full";  // the preset's name
  std::string scorer = "none";  // this and the next three: names in the registry
  std::string layers = "uniform";
  std::string heads = "uniform";
  std::string selector = "top-k";
  // Observation window: the last tokens, which are always kept. Where a budget does not hold sinks and window, the
  // window is half of what the sinks leave of it.
  int window = 32;
  int sinks = 0;  // attention sinks: the first tokens, which are always kept
  Fit fit = Fit::kNone;
  Bits bits = {};
  // Values, in the text form, of options that the parts declare (option.h), as far as they differ from the declared
  // fallback; set() fills it.
  std::map<std::string, std::string, std::less<>> values;
  std::shared_ptr<const HeadImportance> importance;       // used instead of the option head-file if set
  std::shared_ptr<const UtilityProfile> utility_profile;  // used instead of the option profile if set

  // Each returns the value of an option that a part declares; parts read their own with them. They throw
  // Error(kNotFound) for an option that no part declares.
  std::int64_t integer(std::string_view option) const;
  double number(std::string_view option) const;
  const std::string& text_of(std::string_view option) const;

  bool evicts() const { return method != "full"; }
  bool reads_head_file() const;  // returns true if any part reads the option head-file
  bool reads_profile() const;    // returns true if any part reads the option profile

  // Reads "METHOD[:option=value,...]", e.g. "snapkv:window=16,pool=avg,kernel=5"; "auto:fast" is auto-fast. Options are
  // scorer, layers, heads, selector (or select), window, sinks, fit, bits, and those that the parts declare
  // (eviction_options()). Throws Error(kNotFound) with the nearest name for an unknown method or option,
  // Error(kInvalidArgument) for a value out of range, an option that none of the parts uses, and a combination without
  // a meaning.
  static EvictionOptions parse(std::string_view text);

  // Sets one option by its name in the text form. Checks the value's range, but not the combination. Throws as parse()
  // does.
  void set(std::string_view option, std::string_view value);

  // Returns an option's value in the text form. Throws Error(kNotFound) for an unknown option.
  std::string get(std::string_view option) const;

  // Returns the names of the options that the four parts read, window and sinks among them; none for a method that
  // keeps everything.
  std::vector<std::string> used_options() const;

  // Returns the evidence that prefill must save or compute for the scores besides the stored entries, a phrase for each
  // kind; empty: none.
  std::vector<std::string> evidence() const;
  // Returns the dearest kind of evidence in a few words, from "nothing" to "the prompt again": the cost of the method
  // besides the prefill.
  std::string cost() const;

  // Checks the combination of options as parse() does, and throws as it does.
  void validate() const;

  // Returns the shortest text form that parses to these options.
  std::string text() const;

  // Returns the scorer with every option that its scores depend on, except how a prompt is repeated: the scorer for
  // which a profile is calibrated.
  std::string scorer_text() const;

  // Reads the files of the options head-file and profile if the method uses them, unless they are in memory already.
  // parse() calls it. Throws Error(kIo) or Error(kBadFile).
  void load_files();

  // Looks for a profile that fits model and scorer, for a method that reads one and was given none. Engine::open calls
  // it. Throws Error(kNotFound) with the command that makes one, Error(kInvalidArgument) for a given profile of another
  // model.
  void find_profile(std::uint64_t model_fingerprint);
};

// A preset: a row of `winnow methods`.
struct MethodInfo {
  std::string name;
  std::string summary;  // one line
  std::string paper;    // short reference
  EvictionOptions options;
};

// Returns all presets, in the order in which to show them: those that are built in, then those that were registered.
const std::deque<MethodInfo>& eviction_methods();
// Returns the preset of a name. Throws Error(kNotFound) with the nearest name for any other.
const MethodInfo& find_method(std::string_view name);

// An option of the text form: a row of the table that `winnow methods` prints.
struct OptionInfo {
  std::string name;
  std::string values;  // "mean | sum | max", "integer >= 0", ...
  std::string summary;
  std::string used_by;  // the parts that read it
};
// Returns all options of the text form.
std::vector<OptionInfo> eviction_options();

}  // namespace winnow
