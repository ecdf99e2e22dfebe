#include "engine/session_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "engine/evidence/code_cost.h"
#include "engine/evidence/key_feedback.h"
#include "eviction/cut/cut.h"
#include "winnow/error.h"

namespace winnow {

namespace {

// Returns the type of codes with this many bits.
EntryType type_of(int bits) { return bits == 8 ? EntryType::kQ8_0 : bits == 4 ? EntryType::kR4 : EntryType::kR3; }

// Returns the bits that what stays is stored in.
Bits bits_of(const SessionOptions& options) {
  return options.eviction.evicts() ? options.eviction.bits.for_budget(options.budget) : Bits{};
}

// Takes the layers of a ModelSpec or of a ModelInfo.
bool has_heads_for_8_bits(const auto& layers) {
  return std::all_of(layers.begin(), layers.end(),
                     [](const auto& layer) { return layer.key_dim % 32 == 0 && layer.value_dim % 32 == 0; });
}

// Chooses the bits that follow the budget by the sizes of the model's heads: fewer for wide heads, and 4 for all
// entries where the 8 that the budget asks for are not possible.
void choose_bits(Bits& bits, const std::optional<Budget>& budget, const ModelInfo& model) {
  if (bits.rule != Bits::Rule::kByBudget) return;
  int head_dim = std::numeric_limits<int>::max();  // of the smallest head that methods cut
  for (const LayerInfo& layer : model.layers) {
    if (layer.is_evictable()) head_dim = std::min({head_dim, layer.key_dim, layer.value_dim});
  }
  const Bits chosen = bits.for_budget(budget, head_dim);
  const int most = std::max({chosen.all.keys, chosen.all.values, chosen.high.keys, chosen.high.values});
  if (!has_heads_for_8_bits(model.layers) && most == 8) {
    bits = {.rule = Bits::Rule::kGiven, .all = {.keys = 4, .values = 4}};
  } else if (chosen != bits.for_budget(budget)) {
    bits = chosen;
  }
}

// Repeating a text looks every token up in at least one head: 1 / H of the entries of H heads. A budget with less than
// twice that, so that running text gets as much, is not spent on looked-up entries, and the pass that would find them
// is saved. Measured on a model of three heads: docs/methods.md.
constexpr double kLeastLookedUp = 2;  // entries of each token

// If this part of the entries stays, what is looked up fits beside what running text needs: running text gains by more
// weight for it, and a repeat that begins in a later layer finds as many needles as a whole one. If less stays, needles
// are lost by either: docs/methods.md.
constexpr double kAmple = 1.0 / 6;
constexpr const char* kMoreRms = "4";

// Chooses for the scorer `combined`, if the budget is a fraction of the prompt, how the prompt is repeated (not at all,
// which is the scorer `rms`, late, or whole), and the weight of `rms`. A profile holds for the scorer that it was
// calibrated with.
void choose_combination(EvictionOptions& eviction, const std::optional<Budget>& budget, const CacheShape& shape) {
  const bool is_part =
      budget && (budget->unit == Budget::Unit::kFraction || budget->unit == Budget::Unit::kByteFraction);
  if (eviction.scorer != "combined" || !is_part || eviction.reads_profile()) return;
  const std::string repeat = eviction.text_of("repeat");
  // The ratios of any length are nearly the same: bytes hold a few entries of each head in f16.
  constexpr std::int32_t kTokens = 4096;
  const double n_kept = static_cast<double>(budget_entries(*budget, shape, kTokens)) / kTokens;  // of each token
  const bool has_weight = eviction.values.contains("rms-weight");
  if (repeat == "fitting" && !has_weight && n_kept < kLeastLookedUp) {
    eviction.set("scorer", "rms");
    return;
  }
  if (n_kept < kAmple * shape.n_cut_heads()) return;
  if (!has_weight) eviction.set("rms-weight", kMoreRms);
  if (repeat == "fitting" || repeat == "always") eviction.set("repeat", "late");
}

// Has scorers that can weigh a question at the end of the prompt do so. A profile holds for the scorer that it was
// calibrated with.
void weigh_question(EvictionOptions& eviction) {
  if ((eviction.scorer == "rms" || eviction.scorer == "combined") && !eviction.reads_profile()) {
    eviction.set("question", "last");
  }
}

}  // namespace

CacheShape cache_shape(const ModelSpec& spec, const SessionOptions& options) {
  CacheShape shape{.layers = {}, .key_type = options.key_type, .value_type = options.value_type};
  shape.is_truncatable = !options.eviction.evicts();
  const auto check = [](EntryType type, int head_dim) {
    const bool blocks = type == EntryType::kQ8_0 || type == EntryType::kQ4_0;
    if (blocks && head_dim % 32 != 0) {
      throw Error(ErrorCode::kInvalidArgument, "entries of type " + std::string(entry_type_name(type)) +
                                                   " need a head size that is a multiple of 32; this model's is " +
                                                   std::to_string(head_dim) + ": use f16, bf16 or f32");
    }
  };
  const Bits bits = bits_of(options);
  if (bits.is_mixed()) {
    shape.high = {
        .key_type = type_of(bits.high.keys), .value_type = type_of(bits.high.values), .fraction = bits.high_fraction};
  }
  // Entries after the cut include questions and answers, and every token attends to those just before it: they get 8
  // bits.
  const bool are_all_in_8_bits = options.key_type == EntryType::kQ8_0 && options.value_type == EntryType::kQ8_0;
  if (bits.rule != Bits::Rule::kOwn && !are_all_in_8_bits && has_heads_for_8_bits(spec.layers)) {
    shape.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0};
  }
  for (const LayerSpec& layer : spec.layers) {
    if (layer.kind == LayerKind::kSharedAttention) {
      shape.layers[static_cast<std::size_t>(layer.kv_layer)].is_shared = true;
    }
    shape.layers.push_back({.n_kv_head = layer.owns_entries() ? layer.n_kv_head : 0,
                            .key_dim = layer.key_dim,
                            .value_dim = layer.value_dim,
                            .sliding_window = layer.sliding_window});
    check(options.key_type, layer.key_dim);
    check(options.value_type, layer.value_dim);
    if (!shape.high) continue;
    check(shape.high->key_type, layer.key_dim);
    check(shape.high->value_type, layer.value_dim);
  }
  return shape;
}

void SessionOptions::choose_types(const ModelInfo& model) {
  if (!eviction.evicts() || eviction.bits.rule == Bits::Rule::kOwn) return;
  choose_bits(eviction.bits, budget, model);
  const BitWidths bits = eviction.bits.for_budget(budget).all;
  const auto choose = [&](EntryType& own, int width) {
    const EntryType type = type_of(width);
    if (own != EntryType::kF16 && own != type) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the method '" + eviction.text() + "' stores what stays as " + std::string(entry_type_name(type)) +
                      ", but the cache's type is set to " + std::string(entry_type_name(own)) +
                      ": leave the type out, or add bits=own to the method");
    }
    own = type;
  };
  choose(key_type, bits.keys);
  choose(value_type, bits.values);
}

namespace {

// Returns the names of the types of all entries and, if some have more bits, of those.
std::string types_text(EntryType type, const Bits& bits, int BitWidths::*width) {
  const std::string name(entry_type_name(type));
  if (!bits.is_mixed() || type_of(bits.high.*width) == type) return name;
  return std::string(entry_type_name(type_of(bits.high.*width))) + "+" + name;
}

}  // namespace

std::string SessionOptions::stored_key_types() const { return types_text(key_type, bits_of(*this), &BitWidths::keys); }

std::string SessionOptions::stored_value_types() const {
  return types_text(value_type, bits_of(*this), &BitWidths::values);
}

CutShape cut_shape(const CacheShape& shape, std::int32_t n, std::int64_t total) {
  CutShape cut{.heads = {}, .n_tokens = n, .total = total};
  for (const LayerShape& layer : shape.layers) cut.heads.push_back(layer.n_evictable_heads());
  if (shape.high) cut.high = {.fraction = shape.high->fraction, .unit = kPageEntries, .n_plain = kPlainEntries};
  return cut;
}

namespace {

// The most bytes of queries that a session saves for scores, in all layers.
constexpr double kMostRowBytes = 0x1p30;

// Throws Error(kInvalidArgument) for a window or similar length beyond the context, which is a mistake, and for more
// saved queries than kMostRowBytes. A preset's own lengths are for any context.
void check_lengths(const SessionOptions& options, const ModelSpec& spec) {
  const EvictionOptions& wanted = options.eviction;
  if (!wanted.evicts()) return;
  const EvictionOptions& preset = find_method(wanted.method).options;
  for (const char* name : {"window", "sinks", "last-rows", "floor", "ea-skip"}) {
    const std::int64_t value = wanted.integer(name);
    if (value <= std::max<std::int64_t>(options.n_ctx, preset.integer(name))) continue;
    throw Error(ErrorCode::kInvalidArgument, std::string("the option '") + name + "' is " + std::to_string(value) +
                                                 ", but the context has " + std::to_string(options.n_ctx) +
                                                 " tokens: give fewer");
  }
  double row_bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.kind == LayerKind::kFullAttention) row_bytes += static_cast<double>(layer.q_size()) * sizeof(float);
  }
  const int n_rows = evidence_needs(options).window_rows;
  if (n_rows * row_bytes <= kMostRowBytes) return;
  throw Error(ErrorCode::kInvalidArgument,
              (n_rows > wanted.window ? "cuts while decoding save" : "the window saves") +
                  std::string(" the queries of the last ") + std::to_string(n_rows) + " rows, which take " +
                  std::to_string(std::llround(n_rows * row_bytes / 0x1p20)) + " MiB, more than the " +
                  std::to_string(std::llround(kMostRowBytes / 0x1p20)) + " MiB allowed: give at most " +
                  std::to_string(static_cast<int>(kMostRowBytes / row_bytes)) + " rows");
}

// Throws Error(kUnsupported) where a loss cannot be measured: a loss budget reads the last tokens of a prompt again
// after what the cut keeps of those before.
void check_loss(const SessionOptions& options, const ModelSpec& spec) {
  const std::string budget = options.budget->text();
  check_loss_is_measurable(options.eviction, *options.budget);
  if (options.prefill_chunk > 0) {
    throw Error(ErrorCode::kUnsupported, "the budget " + budget +
                                             " is found when the whole prompt has been read, layer by layer: leave out "
                                             "chunked prefill, or give a size");
  }
  if (std::any_of(spec.layers.begin(), spec.layers.end(),
                  [](const LayerSpec& layer) { return layer.kind == LayerKind::kRecurrent; })) {
    throw Error(ErrorCode::kUnsupported,
                "the budget " + budget +
                    " is found by reading the prompt's last tokens again, and this model's recurrent layers cannot go "
                    "back: give a size, e.g. 5%bytes");
  }
}

}  // namespace

SessionOptions checked_session_options(SessionOptions options, const Model::Impl& model) {
  options.eviction.find_profile(model.info.fingerprint);
  options.eviction.validate();
  if (options.budget) options.budget->validate();
  options.choose_types(model.info);
  choose_combination(options.eviction, options.budget, cache_shape(model.spec, options));
  if (options.question_aware && options.prefill_chunk == 0) weigh_question(options.eviction);
  if (options.eviction.evicts() && !options.budget) {
    throw Error(ErrorCode::kInvalidArgument, "the method '" + options.eviction.method +
                                                 "' needs a budget, e.g. 20%, 5%bytes, 512, 64MiB or kl=0.02");
  }
  if (!options.eviction.evicts() && options.budget) {
    throw Error(ErrorCode::kInvalidArgument,
                "a budget has no effect with the method 'full': choose a method that evicts, e.g. snapkv");
  }
  if (options.eviction.evicts() && model.info.n_cut_heads() == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the method '" + options.eviction.method +
                    "' has no effect on this model: all its layers have a sliding window, whose entries are freed when "
                    "they are out of reach; leave the method out");
  }
  if (options.n_ctx < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the context must have at least 1 token, not " + std::to_string(options.n_ctx));
  }
  if (options.n_ctx == 0) options.n_ctx = model.spec.n_ctx_train;
  if (options.prefill_chunk < 0 || options.cut_every < 1) {
    throw Error(ErrorCode::kInvalidArgument, "a prefill chunk and the steps between cuts must be at least 1 token");
  }
  const bool cuts_later = options.prefill_chunk > 0 || options.decode_cut != SessionOptions::DecodeCut::kKeep;
  if (cuts_later && !options.eviction.evicts()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "chunked prefill and cuts while decoding have no effect with the method 'full': choose one that evicts");
  }
  if (options.budget && options.budget->unit == Budget::Unit::kLoss) check_loss(options, model.spec);
  check_lengths(options, model.spec);
  return options;
}

EvidenceNeeds evidence_needs(const SessionOptions& options) {
  if (!options.eviction.evicts()) {
    EvidenceNeeds needs;
    needs.reference_rows = measures_codes(options);
    return needs;
  }
  EvidenceNeeds needs = Cut::needs(options.eviction);
  needs.reference_rows |= feeds_back(options);  // keys are coded with feedback from reference rows
  // A prompt's rows are gone by the time of a cut while decoding: the window's score, or without one, the decoded rows.
  if (needs.all_queries && options.decode_cut != SessionOptions::DecodeCut::kKeep) {
    const int window = options.eviction.window;
    needs.window_rows = std::max(needs.window_rows, window > 0 ? window : options.cut_every);
  }
  if (options.decode_cut != SessionOptions::DecodeCut::kKeep) {
    EvictionOptions choice = options.eviction;
    choice.fit = Fit::kNone;  // values are refitted only with prompts and turns
    if (Cut::needs(choice).reference_rows) {
      throw Error(ErrorCode::kUnsupported, "the method '" + options.eviction.method +
                                               "' scores by rows spread over a prompt and cannot cut while decoding: "
                                               "leave cuts while decoding out");
    }
  }
  if (needs.reconstruction_only &&
      (options.prefill_chunk > 0 || options.decode_cut != SessionOptions::DecodeCut::kKeep)) {
    throw Error(ErrorCode::kUnsupported, "the method '" + options.eviction.method +
                                             "' scores by a pass that repeats the whole prompt and cannot cut again: "
                                             "leave out chunked prefill and cuts while decoding");
  }
  return needs;
}

std::int64_t budget_entries(const Budget& budget, const CacheShape& shape, std::int32_t n) {
  const std::int64_t n_heads = shape.n_cut_heads();
  const std::int64_t wanted = budget.total_entries(n, n_heads, shape.cut_entry_bytes(n));
  const double page_bytes = kPageEntries * shape.cut_entry_bytes(n).stored;
  const double needed = static_cast<double>(n_heads) * page_bytes;
  if (budget.unit == Budget::Unit::kBytes && wanted < n * n_heads && budget.amount < needed) {
    throw Error(ErrorCode::kInvalidArgument,
                "a budget of " + budget.text() + " cannot hold one page per head: " + std::to_string(n_heads) +
                    " heads with pages of " + std::to_string(std::llround(page_bytes)) + " bytes need at least " +
                    std::to_string(std::llround(needed)) + " bytes");
  }
  return wanted;
}

}  // namespace winnow
