#include "engine/prefill/layer_prefill.h"

#include <algorithm>
#include <functional>

#include "base/process_memory.h"
#include "base/stopwatch.h"
#include "engine/estimate.h"
#include "engine/evidence/key_feedback.h"
#include "engine/prefill/first_cut.h"
#include "engine/prefill/reconstruction.h"
#include "engine/raised_heads.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/query_rows.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the needs that decide whether one recording of queries serves two sessions.
EvidenceNeeds recorded_part(EvidenceNeeds needs) {
  needs.output_projection = needs.reconstruction_pass = needs.earlier_scores = false;
  needs.window_columns = 0;
  return needs;
}

// Runs `work` and returns the seconds that it took.
double seconds_of(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

// Returns through how many layers a prompt's rows go before the next rows begin: no more than the sessions' estimates
// count, or than the machine, which other ranks may share, has memory for.
int layers_together(const Engine::Impl& engine, std::span<Session::Impl* const> sessions, std::int32_t n_prompt,
                    std::int32_t n_staged, std::size_t replayed_bytes) {
  int n = engine.pipeline.layers_at_once(engine.layers.size());
  if (n == 1) return 1;
  for (const Session::Impl* session : sessions) {
    n = std::min(n, estimate_of(engine, engine.layers, session->options, n_prompt, 0).n_together);
  }
  const CacheShape shape = sessions[0]->cache.shape().plain();
  const std::size_t most = memory_available() / 2 / static_cast<std::size_t>(engine.pipeline.n_ranks());
  if (replayed_bytes > most) return 1;
  return StagingBuffer::layers_within(most - replayed_bytes, shape, n_staged, n);
}

// Throws Error(kOutOfMemory) where a prompt will not fit on the engine's device, before any of it is read.
void check_device_memory(const Engine::Impl& engine, std::span<Session::Impl* const> sessions, std::int32_t n_prompt) {
  if (engine.device == nullptr) return;
  std::size_t pages = 0;
  MemoryEstimate shared{};  // by all sessions
  for (const Session::Impl* session : sessions) {
    shared = estimate_of(engine, engine.layers, session->options, n_prompt, 0).memory;
    pages += shared.kv_bytes_peak - shared.kv_bytes_staging;
  }
  const std::size_t needed = pages + shared.kv_bytes_staging + shared.hidden_bytes;
  const std::size_t free = engine.device->bytes_free();
  if (needed <= free) return;
  const auto mib = [](std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  throw Error(ErrorCode::kOutOfMemory, "a prompt of " + std::to_string(n_prompt) + " tokens takes " + mib(needed) +
                                           " on " + engine.device->info().id + " (" + mib(pages) + " of pages, " +
                                           mib(shared.kv_bytes_staging) + " for the layer that is being read, " +
                                           mib(shared.hidden_bytes) + " of hidden states), but only " + mib(free) +
                                           " are free: lower the KV budget or shorten the prompt");
}

// Gives the cache the mean keys that the view's device takes, relative to which it stores keys as codes.
void offer_origins(RaggedCache& cache, const LayerView& view) {
  if (view.statistics == nullptr || !kernels::is_coded(cache.shape().key_type)) return;
  const std::vector<KeyOrigin>& origins = view.statistics->origins();
  for (int h = 0; h < view.n_kv_head; ++h) cache.offer_origin(view.layer, h, origins[static_cast<std::size_t>(h)]);
}

}  // namespace

LayerPrefill::LayerPrefill(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions,
                           std::span<const Token> the_tokens, const PrefillOptions& the_callbacks,
                           const LayerObserver* observer)
    : Impl(std::move(the_engine), std::move(the_sessions), the_tokens, the_callbacks) {
  targets_.reserve(sessions.size());  // groups point to them
  for (Session::Impl* session : sessions) {
    targets_.emplace_back(*session, tokens);
    join_group(targets_.back());
  }
  if (observer == nullptr) return;
  observer_ = *observer;
  observed_.emplace(observer->needs, sessions[0]->model().spec, engine_impl().layers);
}

LayerPrefill::~LayerPrefill() = default;

void LayerPrefill::join_group(PromptTarget& target) {
  QueryEvidence& evidence = target.session().evidence;
  window_columns_ |= evidence.needs().window_columns;
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& other) {
    return recorded_part(other.needs) == recorded_part(evidence.needs());
  });
  if (group == groups_.end()) {
    groups_.push_back({.evidence = &evidence, .needs = evidence.needs(), .targets = {&target}});
    return;
  }
  group->needs |= evidence.needs();
  group->targets.push_back(&target);
}

bool LayerPrefill::has_promises() const {
  return std::any_of(targets_.begin(), targets_.end(), [](const PromptTarget& t) { return t.promises(); });
}

void LayerPrefill::begin_pass() {
  const auto n = static_cast<std::int32_t>(tokens.size());
  check_device_memory(engine_impl(), sessions, n);
  if (has_promises()) {
    const std::int32_t n_held_out = held_out_tokens(n);
    held_out_ = {.tokens = std::span(tokens).last(static_cast<std::size_t>(n_held_out)),
                 .first_position = n - n_held_out};
  }
  std::vector<QueryEvidence*> recorders;
  for (Group& group : groups_) {
    recorders.push_back(group.evidence);
    if (std::any_of(group.targets.begin(), group.targets.end(), [](const PromptTarget* t) { return t->refits(); })) {
      group.reference.emplace(engine_impl().model->impl().spec, engine_impl().layers, n, engine_impl().pool);
    }
    if (std::any_of(group.targets.begin(), group.targets.end(),
                    [](const PromptTarget* t) { return t->refits() && t->promises(); })) {
      group.before.emplace(engine_impl().model->impl().spec, engine_impl().layers, n, engine_impl().pool);
    }
  }
  for (const PromptTarget& target : targets_) {
    if (target.refits()) target.session().cache.hold_values();
  }
  std::size_t feedback_bytes = 0;
  for (const PromptTarget& target : targets_) {
    const CacheShape& shape = target.session().cache.shape();
    if (target.has_cut() && shape.high) feedback_bytes = std::max(feedback_bytes, key_feedback_bytes(shape));
  }
  feedback_bytes_ = engine_impl().pool->reserve(feedback_bytes * groups_.size());
  if (observed_) recorders.push_back(&*observed_);
  begin_rows(recorders);
}

void LayerPrefill::begin_rows(const std::vector<QueryEvidence*>& recorders) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  const ModelSpec& spec = engine_impl().model->impl().spec;
  const PromptRepeats repeats = prompt_repeats(*engine_impl().model, needs(), tokens);
  const std::int32_t n_staged = n + repeats.n_entries_behind(n);
  n_together_ =
      layers_together(engine_impl(), sessions, n, n_staged,
                      repeats.late ? SuffixQueries::replayed_bytes(spec, engine_impl().layers, *repeats.late, n) : 0);
  staging_.emplace(sessions[0]->cache.shape().plain(), n_staged, 0, engine_impl().pool, n_together_);
  state_.emplace(spec, engine_impl().pool);
  ForwardPlan plan = forward_plan(tokens, 0);
  plan.suffixes = repeats.parts;
  plan.repeat = repeats.late;
  plan.n_together = n_together_;
  if (!held_out_.tokens.empty()) plan.reads_all_rows = true;
  begin_forward(plan, *staging_, *state_, recorders);
  work_total = pass->work_total();
  const bool keeps_queries = engine_impl().executor->keeps_queries() && n_together_ == 1;
  for (QueryEvidence* recorder : recorders) {
    recorder->begin_rows({.n_rows = n, .of_all_layers = n_together_ > 1, .executor_keeps_queries = keeps_queries});
  }
  if (!repeats.late) return;
  const auto chooser = std::find_if(groups_.begin(), groups_.end(),  // all groups have the same reference rows
                                    [](const Group& g) { return g.needs.late_repeat && g.needs.reference_rows; });
  const bool chooses = chooser != groups_.end();
  late_repeat_.emplace(engine_impl(), *staging_, *pass, *repeats.late, n, chooses ? chooser->evidence : nullptr,
                       chooses && chooser->reference ? &*chooser->reference : nullptr);
}

EvidenceNeeds LayerPrefill::needs() const {
  EvidenceNeeds all = observer_ ? observer_->needs : EvidenceNeeds{};
  for (const PromptTarget& target : targets_) {
    if (target.has_cut()) all |= target.session().evidence.needs();
  }
  return all;
}

void LayerPrefill::begin_repeat(int layer, const RepeatedPart& part) { late_repeat_->begin_part(layer, part); }

void LayerPrefill::end_layer(int layer) {
  // A layer waits here until the last rows have gone on to the next rank, which waits for them. Layers with suffixes do
  // not wait: their queries are overwritten by the next layer's.
  const bool is_last = (layer + 1 - engine_impl().layers.first) % n_together_ == 0 || pass->is_through();
  to_store_.push_back(layer);
  if (!is_last && !pass->queries().has_suffixes(layer)) return;
  for (const int through : to_store_) store(through);
  to_store_.clear();
}

// Moves what is kept of a layer from the staging buffer to the sessions' pages.
void LayerPrefill::store(int layer) {
  if (!engine_impl().model->impl().spec.layer(layer).owns_entries()) return;
  const auto n = static_cast<std::int32_t>(tokens.size());
  const LayerShape& shape = staging_->shape().layer(layer);
  if (shape.is_evictable() && pass->replays(layer)) late_repeat_->replay(layer);
  staging_->begin_rows(layer, 0, n);
  LayerViews views(engine_impl(), *staging_, layer, n,
                   {.whole = pass->queries().whole_passes(layer), .late = pass->queries().late_passes(layer)},
                   &pass->rows());
  if (!shape.is_evictable()) {
    // The held-out text attends to entries before the window that tokens after the prompt see.
    const std::int32_t n_seen = shape.sliding_window + static_cast<std::int32_t>(held_out_.tokens.size());
    for (PromptTarget& target : targets_)
      target.keep_last(views, std::min(n, target.promises() ? n_seen : shape.sliding_window));
  } else {
    receive_layers_before(layer);
    if (observer_) observer_->on_layer(views.with_rows(*observed_, observer_->needs), engine_impl().parallel_for());
    for (Group& group : groups_) score_and_evict(group, views);
  }
  staging_->end_layer(layer);
}

void LayerPrefill::receive_layers_before(int end) {
  const Pipeline& pipeline = engine_impl().pipeline;
  for (; n_received_ < end; ++n_received_) {
    if (pipeline.holds(n_received_) || !sessions[0]->shape.layer(n_received_).is_evictable()) continue;
    for (Group& group : groups_) {
      for (PromptTarget* target : group.targets) {
        if (target->has_cut()) target->apply_remote_cut(n_received_, pipeline.receive_layer(n_received_));
      }
    }
  }
}

void LayerPrefill::score_and_evict(Group& group, LayerViews& views) {
  const ParallelFor parallel_for = engine_impl().parallel_for();
  const bool has_codes = std::any_of(group.targets.begin(), group.targets.end(),
                                     [](const PromptTarget* target) { return feeds_back(target->session().options); });
  LayerView view = views.of(*group.evidence, group.needs);
  const KeyFeedback feedback = has_codes ? key_feedback(view, parallel_for) : KeyFeedback{};
  std::vector<PromptTarget*> cut;
  for (PromptTarget* target : group.targets) {
    if (feeds_back(target->session().options)) set_feedback(target->session().cache, view.layer, feedback);
    if (target->has_cut()) {
      cut.push_back(target);
      offer_origins(target->session().cache, view);
      if (raises_heads(target->session())) {
        target->add_eviction_time(
            seconds_of([&] { choose_raised_heads(target->session().cache, view, feedback, parallel_for); }));
      }
    } else {
      target->measure_codes(view);
      target->keep_all(views);
      target->session().cache.drop_feedback();
    }
  }
  if (cut.empty()) return;
  const double before_s = group.before ? seconds_of([&] { add_before(group, view); }) : 0;
  const double reference_s = group.reference ? seconds_of([&] { group.reference->add_layer(view, parallel_for); }) : 0;
  LayerScoring scoring(view, window_columns_, parallel_for);
  for (PromptTarget* target : cut) {
    if (target->refits()) target->add_eviction_time(reference_s + (target->promises() ? before_s : 0));
    target->cut(views, scoring);
    // Entries in more bits may be coded again in fewer bits as later layers come.
    RaggedCache& cache = target->session().cache;
    if (!cache.shape().high) cache.drop_feedback();
  }
}

void LayerPrefill::add_before(Group& group, LayerView view) {
  if (view.statistics != nullptr) view = with_copies(view);  // they are of the whole prompt
  std::vector<std::vector<kernels::EntryRun>> runs(view.heads.size());
  std::vector<kernels::HeadEntries> heads;
  for (std::size_t h = 0; h < runs.size(); ++h) {
    heads.push_back(slice_entries(view.heads[h], view.shape, 0, held_out_.first_position, runs[h]));
  }
  view.heads = heads;
  view.n_tokens = held_out_.first_position;
  const ReferenceQueries queries = group.evidence->reference_queries(view);
  queries.show_in(view);
  group.before->add_layer(view, engine_impl().parallel_for());
}

bool LayerPrefill::end_pass() {
  receive_layers_before(sessions[0]->shape.n_layer());
  if (!held_out_.tokens.empty()) {
    held_out_.hidden =
        pass->hidden().data() + std::ptrdiff_t{held_out_.first_position} * engine_impl().model->impl().spec.n_embd;
  }
  const std::vector<float> logits = read_output();
  for (Group& group : groups_) {
    group.evidence->end_rows();
    for (PromptTarget* target : group.targets) {
      if (!target->promises()) continue;
      held_out_.reference = target->refits() ? &*group.before : nullptr;
      try {
        target->meet_loss_target(held_out_);
      } catch (const LossRefusal&) {
        refusal = std::current_exception();
        return false;
      }
    }
    group.before.reset();
    for (PromptTarget* target : group.targets) {
      RaggedCache& cache = target->session().cache;
      target->pay_for_raised_heads();
      if (target->refits()) {
        target->add_eviction_time(seconds_of([&] { group.reference->refit(cache, engine_impl().parallel_for()); }));
      }
      QueryEvidence& own = target->session().evidence;
      if (&own != group.evidence) own.copy_state(*group.evidence);
    }
    group.reference.reset();
  }
  state_->commit();
  for (PromptTarget& target : targets_) {
    target.session().recurrent = *state_;
    target.session().cache.drop_feedback();
    target.finish(tokens, logits, pass->suffix_s() + (late_repeat_ ? late_repeat_->seconds() : 0));
    target.session().note_sizes(pass->hidden_bytes(), staging_->bytes());
    if (target.promises()) target.session().settle_cache();  // drops what windows held in addition
  }
  feedback_bytes_.reset();
  late_repeat_.reset();
  pass.reset();
  staging_.reset();
  state_.reset();
  if (std::any_of(targets_.begin(), targets_.end(), [](const PromptTarget& t) { return t.has_cut(); })) {
    engine_impl().pool->trim();
  }
  return false;
}

bool LayerPrefill::undo() {
  feedback_bytes_.reset();
  late_repeat_.reset();
  pass.reset();
  staging_.reset();
  for (Group& group : groups_) {
    group.reference.reset();
    group.before.reset();
  }
  for (Session::Impl* session : sessions) session->reset();
  return false;
}

}  // namespace winnow
