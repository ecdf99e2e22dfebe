// A prompt read into empty sessions, layer by layer: each layer is cut as soon as all rows have passed it, for every
// session in its own way.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/staging_buffer.h"
#include "engine/evidence/layer_views.h"
#include "engine/evidence/reference_attention.h"
#include "engine/prefill/late_repeat.h"
#include "engine/prefill/prefill_impl.h"
#include "engine/prefill/prompt_target.h"

namespace winnow {

// Reads one prompt into one or more empty sessions.
class LayerPrefill final : public Prefill::Impl {
 public:
  LayerPrefill(std::shared_ptr<Engine> engine, std::vector<Session::Impl*> sessions, std::span<const Token> tokens,
               const PrefillOptions& callbacks, const LayerObserver* observer);
  ~LayerPrefill() override;

  void begin_pass() override;
  void begin_repeat(int layer, const RepeatedPart& part) override;
  void end_layer(int layer) override;
  bool end_pass() override;
  void receive_layers_before(int end) override;
  bool undo() override;

 private:
  // Sessions whose methods use the same saved queries: one recording of queries, one view of each layer and one scoring
  // serve them all.
  struct Group {
    QueryEvidence* evidence;  // that of the first session, which records for all
    EvidenceNeeds needs;      // of all
    std::vector<PromptTarget*> targets;
    std::optional<ReferenceAttention> reference = std::nullopt;  // while the prompt is read, if a session refits values
    std::optional<ReferenceAttention> before = std::nullopt;     // for the text before the held-out one
  };
  // Moves what each session keeps of a layer from the staging buffer to its pages, once all rows have passed the layer.
  void store(int layer);
  // Begins the pass of the prompt's rows and of those that repeat it, whose queries `recorders` receive.
  void begin_rows(const std::vector<QueryEvidence*>& recorders);
  // Returns what the observer and the sessions that cut need together.
  EvidenceNeeds needs() const;
  // Records the reference attention of the rows before the held-out text over the entries before it.
  void add_before(Group& group, LayerView view);
  // Returns whether a session's budget names a loss.
  bool has_promises() const;
  // Adds a session to the group that records the same queries, or begins one.
  void join_group(PromptTarget& target);
  // Scores a layer's entries for a group's sessions and stores what each of them keeps.
  void score_and_evict(Group& group, LayerViews& views);

  std::vector<PromptTarget> targets_;  // [sessions]
  std::vector<Group> groups_;
  int n_together_ = 1;           // layers that rows go through before the next rows begin
  std::vector<int> to_store_;    // layers passed while the next rank waited for rows
  int n_received_ = 0;           // layers that receive_layers_before has dealt with
  unsigned window_columns_ = 0;  // WindowColumn bits that the sessions' methods need
  std::optional<LayerObserver> observer_;
  std::optional<QueryEvidence> observed_;
  std::optional<StagingBuffer> staging_;
  std::optional<LateRepeatLayers> late_repeat_;
  Reservation feedback_bytes_;           // reserves memory for the feedback of key codes
  std::optional<RecurrentState> state_;  // of the recurrent layers, alike for all sessions
  HeldOutText held_out_;                 // empty where no session's budget names a loss
};

}  // namespace winnow
