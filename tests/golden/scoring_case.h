// One scoring case: a prompt's tensors as an eviction method sees them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eviction/cut/cut.h"
#include "golden/golden_file.h"
#include "winnow/layer_view.h"

namespace winnow::golden {

// Returns the options of `key=value;...`, without a preset. Throws winnow::Error.
EvictionOptions parse_option_list(const std::string& list);

// Returns the head importances [n_layer][n_kv_head] of a file's "headkv.importance".
HeadImportance head_importance(const GoldenFile& file, int n_kv_head);

// One layer's stored entries and the evidence that an engine would have saved.
struct CaseLayer {
  std::vector<float> k, v;              // [n_kv_head][n_tokens][head_dim]
  std::vector<float> q;                 // [n_tokens][n_head][head_dim]
  std::vector<float> q_pre;             // [n_head][n_tokens][head_dim]
  std::vector<float> w_o;               // [n_head][head_dim][n_embd]
  std::vector<float> log_sum_exp;       // [n_tokens][n_head]
  int n_pass = 0;                       // rows of the reconstruction pass, 0: none
  std::vector<float> pass_q;            // [n_pass][n_head][head_dim]
  std::vector<float> pass_log_sum_exp;  // [n_pass][n_head], of the context and the pass so far
};

// The numbers of a case: the file's, or those that devices work with: queries, keys and values in f16, and W_O in bf16.
enum class CaseNumbers { kOfFile, kOfDevices };

class ScoringCase {
 public:
  explicit ScoringCase(const GoldenFile& file, CaseNumbers numbers = CaseNumbers::kOfFile);

  int n_layer, n_head, n_kv_head, head_dim, n_embd;
  std::int32_t n_tokens;
  std::vector<CaseLayer> layers;

  // Calls `body` with the view of one layer, which has everything that `needs` asks for and is valid during the call.
  void with_view(int layer, const EvidenceNeeds& needs, const std::function<void(const LayerView&)>& body) const;

 private:
  bool interleaved_ = false;
  std::vector<float> frequency_;         // [n_dims/2]
  std::vector<std::int32_t> positions_;  // [n_tokens]
};

// Returns a ParallelFor that runs everything on the calling thread.
const ParallelFor& serial();

}  // namespace winnow::golden
