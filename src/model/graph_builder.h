// The blocks that architectures are made of, as nodes of a ggml graph.
#pragma once

#include <deque>

#include "model/architecture.h"
#include "model/packed_weights.h"
#include "model/stored_product.h"
#include "model/weights.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// The engine's side of attention: stores the rows' keys and values and attends to what is stored.
class AttentionHook {
 public:
  virtual ~AttentionHook() = default;
  // q_unrotated, q [key_dim, n_head, n_rows], k [key_dim, n_kv_head, n_rows], v [value_dim, n_kv_head, n_rows], all
  // float32; q and k rotated. Returns the nodes' output [value_dim * n_head, n_rows].
  virtual ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q,
                              ggml_tensor* k, ggml_tensor* v) = 0;
};

class GraphBuilder {
 public:
  // positions [n_rows], i32. packed: the layer's weights converted for many rows, or null for products on the file's
  // own types, of rows of that kind. compute: runs the graph. All must outlive the graph.
  GraphBuilder(ggml_context* context, AttentionHook& attention, ggml_tensor* positions, const PackedLayer* packed,
               ProductRows rows, Compute& compute)
      : context_(context),
        attention_(attention),
        positions_(positions),
        packed_(packed),
        rows_(rows),
        compute_(compute) {}

  ggml_tensor* rms_norm(ggml_tensor* x, ggml_tensor* weight, float eps);
  // y = W x + b; bias may be null.
  ggml_tensor* linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x);
  // x + y, written over x: the hidden states never move.
  ggml_tensor* add_to(ggml_tensor* x, ggml_tensor* y);
  // Q, K, V with biases and head norms where the layer has them, RoPE, attention, output projection.
  ggml_tensor* self_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // down(activation(gate x) * up x)
  ggml_tensor* gated_feed_forward(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);

 private:
  ggml_tensor* rope(const RopeSpec& spec, ggml_tensor* x, ggml_tensor* freq_factors);

  ggml_context* context_;
  AttentionHook& attention_;
  ggml_tensor* positions_;
  const PackedLayer* packed_;
  ProductRows rows_;
  Compute& compute_;
  QuantisedRows quantised_;
};

// x + attention(norm x), then x + feed_forward(norm x): the block of every architecture so far.
ggml_tensor* build_pre_norm_layer(GraphBuilder& graph, const LayerSpec& spec, const LayerWeights& weights,
                                  ggml_tensor* x);

}  // namespace winnow
