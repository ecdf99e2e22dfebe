#include "study/analysis/analysis.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/planned_cuts.h"
#include "eviction/cut/cut.h"
#include "eviction/evidence/stored_rows.h"
#include "eviction/selectors/critical.h"
#include "study/analysis/attention_facts.h"
#include "study/analysis/future_loss.h"
#include "study/analysis/next_tokens.h"
#include "study/calibrate/oracle.h"
#include "study/head_output.h"
#include "study/passages.h"
#include "winnow/error.h"
#include "winnow/observe.h"
#include "winnow/ranking.h"

namespace winnow {
namespace {

using HeadScores = std::vector<std::vector<float>>;  // [heads that are cut][n_context - window]

class Analyser {
 public:
  Analyser(std::shared_ptr<Engine> engine, const AnalysisOptions& options);
  Analysis run();

 private:
  void progress(double part) const;
  void open_sessions();
  void read_context();
  void measure_losses_of_cuts();
  std::vector<std::vector<std::int32_t>> first_stage(const CutOutcome& cut, const EvictionOptions& method,
                                                     int layer) const;
  void choose_continuation();
  void compare_continuations();
  void measure_future();
  void measure_output(const std::vector<HeadOutput>& full, std::size_t cut);

  // Returns the number of a layer's KV heads, 0 if methods do not cut the layer.
  std::size_t n_kv_head(int layer) const {
    return static_cast<std::size_t>(result_.model.layers[static_cast<std::size_t>(layer)].n_evictable_heads());
  }
  // Returns the index of a layer's head among those of all layers that methods cut.
  std::size_t head_index(int layer, std::size_t head) const {
    std::size_t n = head;
    for (int l = 0; l < layer; ++l) n += n_kv_head(l);
    return n;
  }
  std::int32_t n_context() const { return static_cast<std::int32_t>(options_.context.size()); }

  const std::shared_ptr<Engine> engine_;
  const AnalysisOptions& options_;
  Analysis result_;
  std::vector<Session> sessions_;             // the full cache first, then the cuts
  std::vector<EvictionOptions> methods_;      // of the cuts, with the windows that they have
  std::map<std::string, HeadScores> scores_;  // by the scorer's text
};

Analyser::Analyser(std::shared_ptr<Engine> engine, const AnalysisOptions& options)
    : engine_(std::move(engine)), options_(options) {
  result_.model = engine_->model()->info();
  result_.context = options.context;
  result_.context_text = token_texts(*engine_->model(), options.context);
  result_.question = options.question;
  result_.is_answer = options.continuation.empty();
  result_.window = std::min(kFactsWindow, static_cast<int>(options.context.size()) - 1);
  for (const AnalysedCut& cut : options.cuts) {
    if (!cut.method.evicts()) {
      throw Error(ErrorCode::kInvalidArgument, "'full' loses nothing: name methods that evict, e.g. snapkv");
    }
  }
  if (result_.model.n_cut_heads() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "all layers of this model have a sliding window: no method cuts them");
  }
  result_.layers.resize(result_.model.layers.size());
  if (options.context.size() <= kFactsWindow + 1) {
    throw Error(ErrorCode::kInvalidArgument, "a context of " + std::to_string(options.context.size()) +
                                                 " tokens is too short to analyse: give at least " +
                                                 std::to_string(kFactsWindow + 2));
  }
  if (!result_.is_answer && options.continuation.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument, "a continuation needs at least 2 tokens to be predicted");
  }
}

void Analyser::progress(double part) const {
  if (options_.on_progress && !options_.on_progress(part)) {
    throw Error(ErrorCode::kCancelled, "the analysis was stopped");
  }
}

Analysis Analyser::run() {
  open_sessions();
  read_context();
  progress(0.4);
  measure_losses_of_cuts();
  progress(0.6);
  choose_continuation();
  compare_continuations();
  measure_future();
  progress(1);
  return std::move(result_);
}

void Analyser::open_sessions() {
  const int n_rows = std::max({static_cast<int>(options_.continuation.size()), options_.n_answer, 1});
  sessions_.push_back(open_observed(*engine_, {}, {.window_rows = n_rows, .output_projection = true}));
  for (const AnalysedCut& cut : options_.cuts) {
    SessionOptions session;
    session.eviction = cut.method;
    session.budget = cut.budget;
    sessions_.push_back(engine_->open(session));
    methods_.push_back(with_window_of_cut(sessions_.back(), cut.method, n_context()));
  }
}

void Analyser::read_context() {
  LayerObserver observer;
  observer.needs = attention_facts_needs();
  for (const AnalysedCut& cut : options_.cuts) observer.needs |= Cut::needs(cut.method);
  observer.on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
    LayerScoring scoring(view, observer.needs.window_columns, parallel_for);
    result_.layers[static_cast<std::size_t>(view.layer)] = attention_facts(scoring);
    for (const EvictionOptions& method : methods_) {
      HeadScores& scores = scores_[method.scorer_text()];
      if (scores.size() > head_index(view.layer, 0)) continue;  // another cut has the same scorer
      const LayerScores& layer = scoring.scores(method);
      scores.insert(scores.end(), layer.begin(), layer.end());
    }
  };
  PrefillOptions callbacks;
  callbacks.on_progress = [&](std::int64_t done, std::int64_t total) {
    progress(0.4 * static_cast<double>(done) / static_cast<double>(total));
    return true;
  };
  std::vector<Session*> all;
  for (Session& session : sessions_) all.push_back(&session);
  prefill_observed(*engine_, all, options_.context, observer, callbacks);
  result_.bytes_full = sessions_[0].statistics().bytes_kept;
  for (std::size_t c = 0; c < options_.cuts.size(); ++c) {
    const Session& session = sessions_[c + 1];
    CutOutcome& cut = result_.cuts.emplace_back();
    cut.bytes_kept = session.statistics().bytes_kept;
    cut.raised = session.statistics().raised;
    cut.method = session.options().eviction.text();
    cut.budget = session.options().budget->text();
    cut.entries_full = std::int64_t{n_context()} * result_.model.n_cut_heads();
    result_.positions.emplace_back();
    for (int l = 0; l < result_.model.n_layer(); ++l) {
      LayerOutcome& layer = cut.layers.emplace_back();
      result_.positions.back().emplace_back();
      for (std::size_t h = 0; h < n_kv_head(l); ++h) {
        result_.positions.back().back().push_back(session.positions(l, static_cast<int>(h)));
        layer.kept.push_back(static_cast<std::int32_t>(result_.positions.back().back().back().size()));
        cut.entries_kept += layer.kept.back();
      }
    }
  }
}

// Returns the entries that CriticalKV keeps for certain in one layer: sinks, window and those that its first stage
// chose by attention alone, [n_kv_head].
std::vector<std::vector<std::int32_t>> Analyser::first_stage(const CutOutcome& cut, const EvictionOptions& method,
                                                             int layer) const {
  std::vector<std::vector<std::int32_t>> certain;
  const HeadScores& scores = scores_.at(method.scorer_text());
  for (std::size_t h = 0; h < n_kv_head(layer); ++h) {
    const std::vector<float>& all = scores[head_index(layer, h)];
    const auto n_prefix = static_cast<std::int32_t>(all.size()), sinks = std::min(method.sinks, n_prefix);
    const std::int32_t kept = cut.layers[static_cast<std::size_t>(layer)].kept[h];
    const auto n_first = static_cast<std::size_t>(first_stage_size(kept - sinks - (n_context() - n_prefix), method));
    const std::vector<std::int32_t> order = order_by_score({all.begin() + sinks, all.end()});
    std::vector<std::int32_t>& head = certain.emplace_back();
    for (std::int32_t i = 0; i < sinks; ++i) head.push_back(i);
    for (std::size_t i = 0; i < std::min(n_first, order.size()); ++i) head.push_back(sinks + order[i]);
    for (std::int32_t i = n_prefix; i < n_context(); ++i) head.push_back(i);
  }
  return certain;
}

void Analyser::measure_losses_of_cuts() {
  observe_stored(sessions_[0], {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                                  const LossMeter meter(view, parallel_for);
                                  for (std::size_t c = 0; c < options_.cuts.size(); ++c) {
                                    CutOutcome& cut = result_.cuts[c];
                                    const EvictionOptions& method = methods_[c];
                                    std::vector<std::vector<std::int32_t>> certain;
                                    if (method.selector == "critical") certain = first_stage(cut, method, view.layer);
                                    const auto layer = static_cast<std::size_t>(view.layer);
                                    // Every token's entry is stored, so positions are indices.
                                    cut.layers[layer].losses = meter.measure(result_.positions[c][layer], certain);
                                  }
                                  progress(0.4 + 0.2 * (view.layer + 1) / result_.model.n_layer());
                                }});
}

void Analyser::choose_continuation() {
  if (!options_.question.empty()) {
    for (Session& session : sessions_) session.append(options_.question);
  }
  result_.continuation = options_.continuation;
  if (!result_.is_answer) return;
  Session answering = sessions_[0].fork();
  result_.continuation = decode_greedily(answering, options_.n_answer);
}

void Analyser::compare_continuations() {
  // Without a question the context's own last row predicts the first token, before any cut.
  const int first = options_.question.empty() ? 1 : 0;
  const std::span<const Token> tokens = result_.continuation;
  if (static_cast<int>(tokens.size()) <= first) {
    throw Error(ErrorCode::kInvalidArgument, "the model's answer is empty: ask something else");
  }
  // The full cache gets the last token, too: its row says what it attends to.
  const std::vector<std::vector<float>> full = predict(sessions_[0], tokens, first);
  sessions_[0].append(tokens.last(1));
  for (std::size_t c = 0; c < result_.cuts.size(); ++c) {
    const std::vector<std::vector<float>> cut = predict(sessions_[c + 1], tokens, first);
    result_.cuts[c].next = compare_predictions(full, cut, tokens.subspan(static_cast<std::size_t>(first)));
    progress(0.6 + 0.2 * static_cast<double>(c + 1) / static_cast<double>(result_.cuts.size()));
  }
}

void Analyser::measure_future() {
  const auto n_rows = static_cast<int>(result_.continuation.size());
  HeadValues importance;
  std::vector<const LayerInfo*> layer_of_head;
  std::vector<HeadOutput> full;  // [heads that are cut]
  observe_stored(sessions_[0],
                 {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                    const HeadValues oracle = oracle_importance(view, n_context(), n_rows, parallel_for);
                    const HeadValues attention = future_attention(view, n_context(), n_rows, parallel_for);
                    const auto layer = static_cast<std::size_t>(view.layer);
                    for (std::size_t h = 0; h < oracle.size(); ++h) {
                      double sum = 0;
                      for (const double value : oracle[h]) sum += value;
                      result_.layers[layer].importance.push_back(sum);
                      layer_of_head.push_back(&result_.model.layers[layer]);
                      result_.layers[layer].by_bytes.push_back(
                          loss_by_bytes(std::span(&oracle[h], 1), std::span(&layer_of_head.back(), 1)));
                      full.emplace_back(view, static_cast<int>(h), n_context(), n_rows);
                    }
                    for (std::size_t c = 0; c < result_.cuts.size(); ++c) {
                      add_future_losses(result_.positions[c][layer], oracle, attention, result_.cuts[c].layers[layer]);
                    }
                    importance.insert(importance.end(), oracle.begin(), oracle.end());
                    progress(0.8 + 0.15 * (view.layer + 1) / result_.model.n_layer());
                  }});
  result_.by_bytes = loss_by_bytes(importance, layer_of_head);
  for (std::size_t c = 0; c < result_.cuts.size(); ++c) {
    const EvictionOptions& method = methods_[c];
    add_model_losses(importance, scores_.at(method.scorer_text()), method, result_.cuts[c]);
    measure_output(full, c);
  }
}

void Analyser::measure_output(const std::vector<HeadOutput>& full, std::size_t cut) {
  CutOutcome& outcome = result_.cuts[cut];
  double error = 0, square = 0;
  observe_stored(
      sessions_[cut + 1],
      {.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
         std::vector<double> errors(static_cast<std::size_t>(view.n_kv_head));
         parallel_for(view.n_kv_head, [&](int head) {
           const auto h = static_cast<std::size_t>(head);
           // Only the context's entries count; those appended since have later positions.
           std::vector<kernels::EntryRun> runs;
           kernels::HeadEntries context;
           for (kernels::EntryRun run : view.heads[h].runs) {
             run.n_entries = run.positions.count_below(n_context(), run.n_entries);
             runs.push_back(run);
             context.n_entries += run.n_entries;
           }
           context.runs = runs;
           const std::vector<float> keys = load_rows(view.shape, context, kernels::RowKind::kKey, context.n_entries);
           const std::vector<float> values =
               load_rows(view.shape, context, kernels::RowKind::kValue, context.n_entries);
           errors[h] = full[head_index(view.layer, h)].error(context.n_entries, keys.data(), values.data());
         });
         for (std::size_t h = 0; h < errors.size(); ++h) {
           const double all = full[head_index(view.layer, h)].square();
           outcome.layers[static_cast<std::size_t>(view.layer)].output_error.push_back(all > 0 ? errors[h] / all : 0.0);
           error += errors[h];
           square += all;
         }
       }});
  outcome.output_error = square > 0 ? error / square : 0;
}

}  // namespace

Analysis analyse(const std::shared_ptr<Engine>& engine, const AnalysisOptions& options) {
  return Analyser(engine, options).run();
}

}  // namespace winnow
