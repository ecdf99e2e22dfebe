// tiny-<arch>.expected.gguf: the whole engine on small complete models, through the public interface and the cache.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "engine/engine_impl.h"
#include "eviction/options/registry.h"
#include "golden/checks.h"
#include "golden/golden_file.h"
#include "golden/scoring_case.h"
#include "winnow/error.h"
#include "winnow/session.h"

namespace winnow::golden {
namespace {

constexpr double kSetMargin = 1e-4;
constexpr double kRoundMargin = 1e-3;
constexpr Tolerance kFullLogits = {0, 1e-4, 0};
constexpr Tolerance kCutLogits = {0, 1e-3, 0};

struct TinyCase {
  std::shared_ptr<Engine> engine;
  std::vector<Token> tokens;
  std::int64_t n_prompt, n_question, chunk;
  int n_layer, n_kv_head;
  std::shared_ptr<HeadImportance> importance = std::make_shared<HeadImportance>();
  std::shared_ptr<UtilityProfile> profile = std::make_shared<UtilityProfile>();

  std::span<const Token> range(std::int64_t first, std::int64_t last) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  }
};

// Returns the kept positions of every head, [n_layer * n_kv_head].
std::vector<std::vector<std::int32_t>> kept_positions(Session& session, const TinyCase& tiny) {
  std::vector<std::vector<std::int32_t>> kept;
  for (int l = 0; l < tiny.n_layer; ++l) {
    for (int h = 0; h < tiny.n_kv_head; ++h) {
      std::vector<std::int32_t>& head = kept.emplace_back();
      for (const kernels::EntryRun& run : session.impl().cache.entries(l, h).runs) {
        run.positions.append_to(head, run.n_entries);
      }
    }
  }
  return kept;
}

// The heads whose kept sets are too close to call; `all`: every head of the configuration.
struct Unsure {
  bool all = false;
  std::vector<bool> head;

  bool any() const { return all || std::find(head.begin(), head.end(), true) != head.end(); }
};

Unsure read_margins(const GoldenFile& file, const std::string& prefix, const std::string& scorer, const TinyCase& tiny,
                    Tally& tally) {
  Unsure unsure;
  unsure.head.assign(static_cast<std::size_t>(tiny.n_layer * tiny.n_kv_head), false);
  const auto below = [&](const char* name, double limit) {
    return file.has(prefix + name) && file.doubles(prefix + name).at(0) < limit;
  };
  if (below("round_margin", kRoundMargin) || below("step_margin", kSetMargin)) {
    unsure.all = true;
    tally.skip_margin();
    return unsure;
  }
  const auto values = [&](const char* name) {
    return file.has(prefix + name) ? file.doubles(prefix + name) : std::vector<double>();
  };
  const std::vector<double> flat = values("flat_margin");
  const std::vector<double> margin = values("margin");
  const std::vector<std::int32_t> tie =
      file.has(prefix + "tie") ? file.int32s(prefix + "tie").data : std::vector<std::int32_t>();
  for (std::size_t i = 0; i < unsure.head.size(); ++i) {
    const std::size_t l = i / static_cast<std::size_t>(tiny.n_kv_head);
    // Equal tokens at different positions have norms that are equal up to rounding.
    const bool norm_tie = scorer == "knorm" && !tie.empty() && tie.at(i) > 0;
    unsure.head[i] =
        (!flat.empty() && flat.at(l) < kSetMargin) || (!margin.empty() && margin.at(i) < kSetMargin) || norm_tie;
    if (unsure.head[i]) tally.skip_margin();
  }
  return unsure;
}

void compare_kept(const GoldenFile& file, const std::string& prefix, const std::string& which, const Unsure& unsure,
                  const std::vector<std::vector<std::int32_t>>& kept, Tally& tally) {
  const std::string what = file.path() + " " + prefix + which;
  const std::vector<std::int32_t> budgets = file.int32s(prefix + which + "budget").data;
  const std::vector<std::int32_t> positions = file.int32s(prefix + which + "kept").data;
  std::string bad;
  auto next = positions.begin();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto end = next + budgets.at(i);
    if (!unsure.head[i] && !std::equal(next, end, kept[i].begin(), kept[i].end())) {
      bad += " head " + std::to_string(i) + ": " + std::to_string(kept[i].size()) + " entries, expected " +
             std::to_string(budgets[i]) + ", or others;";
    }
    next = end;
  }
  tally.require(what + "kept", bad.empty(), bad);
}

std::vector<double> row_of(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

void check_mode(const GoldenFile& file, const TinyCase& tiny, const std::string& mode, const std::string& config,
                const EvictionOptions& eviction, std::int64_t budget, Tally& tally) {
  const std::string prefix = mode + "/" + config + "/b" + std::to_string(budget) + "/";
  if (!file.has(prefix + "budget")) return;
  SessionOptions options{.key_type = EntryType::kF32, .value_type = EntryType::kF32, .eviction = eviction};
  options.budget = Budget{.unit = Budget::Unit::kTokens, .amount = static_cast<double>(budget)};
  if (mode == "chunked") options.prefill_chunk = static_cast<std::int32_t>(tiny.chunk);
  if (mode == "cut4") {
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = 4;
  }
  if (mode == "cut-cake") options.decode_cut = SessionOptions::DecodeCut::kOwn;
  Session session = tiny.engine->open(options);

  std::vector<double> logits;
  const auto keep_row = [&](std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); };
  const std::int64_t n_cut = mode == "agnostic" ? tiny.n_prompt - tiny.n_question : tiny.n_prompt;
  session.prefill(tiny.range(0, n_cut));
  keep_row(session.logits());
  const Unsure unsure = read_margins(file, prefix, eviction.scorer, tiny, tally);
  if (unsure.all) return;
  compare_kept(file, prefix, "", unsure, kept_positions(session, tiny), tally);
  if (n_cut < tiny.n_prompt) {
    session.append(tiny.range(n_cut, tiny.n_prompt),
                   {.on_progress = {}, .on_logits = [&](std::int32_t, std::span<const float> row) { keep_row(row); }});
  }
  for (const Token token : tiny.range(tiny.n_prompt, static_cast<std::int64_t>(tiny.tokens.size()))) {
    session.decode(token);
    keep_row(session.logits());
  }
  if (file.has(prefix + "end_budget")) compare_kept(file, prefix, "end_", unsure, kept_positions(session, tiny), tally);
  // If other entries may be kept, the logits may differ, too.
  if (!unsure.any())
    tally.close(file.path() + " " + prefix + "logits", logits, file.doubles(prefix + "logits"), kCutLogits);
}

}  // namespace

void check_tiny(const std::string& expected_path, Tally& tally) {
  const GoldenFile file(expected_path);
  const std::filesystem::path folder = std::filesystem::path(expected_path).parent_path();
  TinyCase tiny;
  const auto model = Model::load((folder / file.text("winnow.model")).string());
  tiny.engine = Engine::create(model, {.n_threads = 2});
  tiny.n_layer = model->info().n_layer();
  tiny.n_kv_head = model->info().layers.front().n_kv_head;
  tiny.n_prompt = file.integer("winnow.n_prompt");
  tiny.n_question = file.integer("winnow.n_question");
  tiny.chunk = file.integer("winnow.chunk");
  tiny.tokens = file.int32s("tokens").data;

  std::vector<double> full;
  Session session = tiny.engine->open({.key_type = EntryType::kF32, .value_type = EntryType::kF32});
  session.prefill(tiny.range(0, tiny.n_prompt),
                  {.on_progress = {}, .on_logits = [&](std::int32_t, std::span<const float> row) {
                     full.insert(full.end(), row.begin(), row.end());
                   }});
  for (const Token token : tiny.range(tiny.n_prompt, static_cast<std::int64_t>(tiny.tokens.size()))) {
    session.decode(token);
    const std::vector<double> row = row_of(session.logits());
    full.insert(full.end(), row.begin(), row.end());
  }
  tally.close(expected_path + " full/logits", full, file.doubles("full/logits"), kFullLogits);

  if (file.has("headkv.importance")) {
    *tiny.importance = head_importance(file, tiny.n_kv_head);
  }
  if (file.has("lukv.profile")) {
    tiny.profile->heads.assign(tiny.n_layer, tiny.n_kv_head);
    tiny.profile->kept = file.doubles("lukv.profile");
    for (int i = 1; i < 100; ++i) tiny.profile->ratios.push_back(i / 100.0);
  }
  for (const std::string& config : file.texts("winnow.configs")) {
    EvictionOptions options;
    try {
      options = parse_option_list(file.text("winnow.config." + config));
      find_parts(options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
      tally.fail(file.path() + " " + config, error.what());
      continue;
    }
    options.importance = tiny.importance;
    options.utility_profile = tiny.profile;
    for (const std::string mode : {"aware", "agnostic", "chunked", "cut4", "cut-cake"}) {
      for (const std::int64_t budget : file.integers("winnow.budgets")) {
        check_mode(file, tiny, mode, config, options, budget, tally);
      }
    }
  }
}

}  // namespace winnow::golden
