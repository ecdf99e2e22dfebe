#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "engine/evidence/layer_views.h"
#include "engine/prefill/prefill_impl.h"
#include "engine/session_options.h"
#include "eviction/fitting_window.h"

namespace winnow {
namespace {

// What decides whether one recording of queries serves two sessions.
EvidenceNeeds recorded_part(EvidenceNeeds needs) {
  needs.output_projection = needs.reconstruction_pass = false;
  needs.window_columns = 0;
  return needs;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int32_t longest(std::span<const std::vector<Token>> parts) {
  std::size_t n = 0;
  for (const std::vector<Token>& part : parts) n = std::max(n, part.size());
  return static_cast<std::int32_t>(n);
}

}  // namespace

LayerPrefill::LayerPrefill(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions,
                           std::span<const Token> the_tokens, const PrefillOptions& the_callbacks,
                           const LayerObserver* observer)
    : Impl(std::move(the_engine), std::move(the_sessions), the_tokens, the_callbacks) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  const CacheShape& shape = sessions[0]->cache.shape();
  std::vector<QueryEvidence*> recorders;
  std::map<std::size_t, std::shared_ptr<ReferenceAttention>> references;  // by recorder
  bool reconstructs = false;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    Session::Impl& session = *sessions[i];
    session.check_tokens(tokens);
    Target target{.session = &session, .cut = nullptr, .recorder = i};
    if (session.options.eviction.evicts()) {
      target.total = session.total_entries(n);
      const CutShape to_cut = cut_shape(shape, n, target.total);
      target.cut = std::make_unique<Cut>(with_fitting_window(session.options.eviction, to_cut), to_cut);
      if (target.cut->keeps_everything()) target.cut.reset();
      reconstructs |= target.cut != nullptr && session.evidence.needs().reconstruction_pass;
    }
    const EvidenceNeeds needs = recorded_part(session.evidence.needs());
    for (std::size_t j = 0; j < i && target.recorder == i; ++j) {
      if (recorded_part(sessions[j]->evidence.needs()) == needs) target.recorder = targets_[j].recorder;
    }
    if (target.recorder == i) recorders.push_back(&session.evidence);
    if (target.cut != nullptr && session.options.eviction.fit == Fit::kValues) {
      std::shared_ptr<ReferenceAttention>& reference = references[target.recorder];
      if (!reference) reference = std::make_shared<ReferenceAttention>(session.model().spec, n, engine_impl().pool);
      target.reference = reference;
    }
    targets_.push_back(std::move(target));
  }
  if (observer != nullptr) {
    observer_ = *observer;
    observed_ = std::make_unique<QueryEvidence>(observer->needs, sessions[0]->model().spec);
    recorders.push_back(observed_.get());
    reconstructs |= observer->needs.reconstruction_pass;
  }

  std::vector<std::vector<Token>> followers;
  if (reconstructs) followers = reconstruction_parts(*engine_impl().model, tokens);
  staging_.emplace(shape.staged(), n + longest(followers), 0, engine_impl().pool);
  pass_.emplace(engine_impl(), *staging_, tokens, 0, recorders, followers);
  work_total = pass_->work_total();
  for (QueryEvidence* recorder : recorders) recorder->begin_rows(0, n, false);
}

LayerPrefill::~LayerPrefill() = default;

bool LayerPrefill::step() {
  if (is_through) {
    finish();
    return false;
  }
  is_through = !pass_->step([this](int layer) { judge_layer(layer); });
  return true;
}

void LayerPrefill::judge_layer(int layer) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  const LayerShape& shape = sessions[0]->cache.shape().layer(layer);
  std::vector<kernels::EntryRun> runs;
  std::vector<kernels::HeadEntries> heads;
  runs.reserve(static_cast<std::size_t>(shape.n_kv_head));
  for (int h = 0; h < shape.n_kv_head; ++h) {
    runs.push_back(staging_->run(h, n));
    heads.push_back({.runs = std::span(&runs.back(), 1), .n_entries = n});
  }
  if (shape.is_cut()) {
    cut_layer(layer, heads);
  } else {
    keep_window(layer, heads);
  }
}

void LayerPrefill::keep_window(int layer, std::span<const kernels::HeadEntries> heads) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  std::vector<std::int32_t> last(static_cast<std::size_t>(std::min(n, sessions[0]->cache.shape().layer(layer).window)));
  std::iota(last.begin(), last.end(), n - static_cast<std::int32_t>(last.size()));
  for (const Target& target : targets_) {
    engine_impl().parallel_for()(static_cast<int>(heads.size()), [&](int h) {
      target.session->cache.append_from(layer, h, heads[static_cast<std::size_t>(h)], last, staging_->shape());
    });
  }
}

void LayerPrefill::cut_layer(int layer, std::span<const kernels::HeadEntries> heads) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  const int n_kv_head = sessions[0]->cache.shape().layer(layer).n_kv_head;
  const ParallelFor parallel_for = engine_impl().parallel_for();
  const std::vector<ReconstructionPass> passes = pass_->reconstruction();
  std::vector<std::int32_t> all;
  std::vector<float> w_o;
  double w_o_s = 0;
  unsigned columns = 0;
  for (const Target& target : targets_) columns |= target.session->evidence.needs().window_columns;

  // One view per recording of queries, and with it one scoring; `fill` keeps the pointers valid until its next call.
  const auto view_of = [&](QueryEvidence& evidence, const EvidenceNeeds& needs) {
    LayerView view = layer_view(engine_impl(), staging_->shape(), layer, heads, n);
    evidence.fill(view, std::numeric_limits<int>::max());
    if (needs.reconstruction_pass) view.passes = passes;
    if (needs.output_projection) {
      if (w_o.empty()) w_o_s = seconds_of([&] { w_o = output_projection(engine_impl(), layer); });
      view.w_o = w_o.data();
    }
    return view;
  };
  if (observer_) observer_->on_layer(view_of(*observed_, observer_->needs), parallel_for);

  // What targets share is made by the first of them and costs each as much as if it were alone.
  std::map<std::size_t, LayerView> views;
  std::map<std::size_t, LayerScoring> scorings;
  std::map<std::size_t, double> reference_s;
  for (Target& target : targets_) {
    RaggedCache& cache = target.session->cache;
    if (!target.cut) {
      if (all.empty()) {
        all.resize(static_cast<std::size_t>(n));
        std::iota(all.begin(), all.end(), 0);
      }
      parallel_for(n_kv_head, [&](int h) {
        cache.append_from(layer, h, heads[static_cast<std::size_t>(h)], all, staging_->shape());
      });
      continue;
    }
    if (!views.contains(target.recorder)) {
      EvidenceNeeds needs;
      for (const Target& other : targets_) {
        if (other.recorder == target.recorder) needs |= other.session->evidence.needs();
      }
      const auto [view, is_new] = views.emplace(target.recorder, view_of(sessions[target.recorder]->evidence, needs));
      scorings.try_emplace(target.recorder, view->second, columns, parallel_for);
    }
    if (target.reference != nullptr) {
      double& cost = reference_s[target.recorder];
      if (cost == 0) {
        cost = seconds_of([&] { target.reference->add_layer(views.at(target.recorder), parallel_for); });
      }
      target.evict_s += cost;
    }
    if (target.session->evidence.needs().output_projection) target.evict_s += w_o_s;
    LayerScoring& scoring = scorings.at(target.recorder);
    scoring.costs().begin_payer();
    const auto start = std::chrono::steady_clock::now();
    std::vector<LayerCut> due = target.cut->add_layer(scoring);
    std::vector<std::vector<std::int32_t>> kept;  // of this layer, if it is due
    if (!due.empty() && due.back().layer == layer) {
      kept = std::move(due.back().kept);
      due.pop_back();
    }
    // Layers already stored give pages back before the new one takes any.
    keep_entries(cache, due, parallel_for);
    parallel_for(static_cast<int>(kept.size()), [&](int h) {
      const auto at = static_cast<std::size_t>(h);
      cache.append_from(layer, h, heads[at], kept[at], staging_->shape());
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    target.evict_s += elapsed.count() + scoring.costs().made_by_others();
  }
}

void LayerPrefill::finish() {
  const std::vector<float> logits = pass_->read_logits(callbacks.on_logits);
  for (Target& target : targets_) {
    if (target.reference == nullptr) continue;
    target.evict_s += seconds_of([&] { target.reference->refit(target.session->cache, engine_impl().parallel_for()); });
  }
  for (const Target& target : targets_) sessions[target.recorder]->evidence.end_rows();
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    Session::Impl& session = *target.session;
    if (target.recorder != i) session.evidence.copy_state(sessions[target.recorder]->evidence);
    session.tokens = tokens;
    session.logits = logits;
    session.total = target.total;
    session.note_head_budgets();
    session.note_sizes(pass_->hidden_bytes(), staging_->bytes());
    session.statistics.prompt_tokens += static_cast<std::int64_t>(tokens.size());
    session.statistics.evict_s += target.evict_s;
    if (target.cut != nullptr && session.evidence.needs().reconstruction_pass) {
      session.statistics.evict_s += pass_->follower_s();
    }
  }
  pass_.reset();
  staging_.reset();
  for (Target& target : targets_) target.reference.reset();
  if (std::any_of(targets_.begin(), targets_.end(), [](const Target& t) { return t.cut != nullptr; })) {
    engine_impl().pool->trim();
  }
}

void LayerPrefill::undo() {
  pass_.reset();
  staging_.reset();
  for (Session::Impl* session : sessions) {
    session->evidence = QueryEvidence(session->evidence.needs(), session->model().spec);
    session->cache.clear();
    session->tokens.clear();
    session->logits.clear();
  }
  engine_impl().pool->trim();
}

std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context) {
  constexpr std::size_t kPart = 2048;
  constexpr std::size_t kOverlap = 8;
  const std::vector<Token> first = model.tokenize("\n\nRepeat the previous context exactly.", false, false);
  const std::vector<Token> later =
      model.tokenize("\n\nRepeat the part of the previous context exactly, starting with", false, false);
  std::vector<std::vector<Token>> parts;
  for (std::size_t begin = 0; begin < context.size(); begin += kPart) {
    std::vector<Token>& part = parts.emplace_back(begin == 0 ? first : later);
    const std::size_t from = begin - std::min(begin, kOverlap);
    const std::size_t end = std::min(begin + kPart, context.size());
    part.insert(part.end(), context.begin() + static_cast<std::ptrdiff_t>(from),
                context.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return parts;
}

}  // namespace winnow
