// One prompt into empty sessions, layer by layer: each layer is cut as soon as it is through, for every session in its
// own way.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/staging_buffer.h"
#include "engine/evidence/layer_views.h"
#include "engine/evidence/reference_attention.h"
#include "engine/prefill/prefill_impl.h"
#include "engine/prefill/prompt_target.h"

namespace winnow {

class LayerPrefill final : public Prefill::Impl {
 public:
  LayerPrefill(std::shared_ptr<Engine> engine, std::vector<Session::Impl*> sessions, std::span<const Token> tokens,
               const PrefillOptions& callbacks, const LayerObserver* observer);
  ~LayerPrefill() override;

  void begin_pass() override;
  void end_layer(int layer) override;
  bool end_pass() override;
  void receive_layers_before(int end) override;
  void undo() override;

 private:
  // Sessions whose methods look at the same saved queries: one recording of these, one view of a layer and one scoring
  // serve them all.
  struct Group {
    QueryEvidence* evidence;  // the first one's: it records
    EvidenceNeeds needs;      // of all
    std::vector<PromptTarget*> targets;
    std::optional<ReferenceAttention> reference = std::nullopt;  // while the prompt is read, if one of them refits
    std::optional<ReferenceAttention> before = std::nullopt;     // of the text before the one that is held out
  };
  // Keeps of a layer that all rows are through with what is to be kept.
  void store(int layer);
  // Of the rows before the held-out text on the entries before it.
  void add_before(Group& group, LayerView view);
  bool has_promises() const;
  void join_group(PromptTarget& target);
  void score_and_evict(Group& group, LayerViews& views);

  std::vector<PromptTarget> targets_;  // [sessions]
  std::vector<Group> groups_;
  int n_together_ = 1;           // layers that rows go through before the next rows do
  std::vector<int> to_store_;    // while the next rank waits for rows
  int n_received_ = 0;           // layers that receive_layers_before is through with
  unsigned window_columns_ = 0;  // of all sessions
  std::optional<LayerObserver> observer_;
  std::optional<QueryEvidence> observed_;
  std::optional<StagingBuffer> staging_;
  std::shared_ptr<void> feedback_bytes_;  // of the codes of keys
  std::optional<RecurrentState> state_;   // of the recurrent layers, for all sessions
  HeldOutText held_out_;                  // of no tokens where no session promises anything
};

}  // namespace winnow
