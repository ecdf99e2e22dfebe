// The operations of a layer that are computed in more than one way: with nodes that call back into winnow's kernels, on
// this machine's processor, or with ggml's own nodes alone, on devices, which cannot call back.
#pragma once

#include <span>

#include "model/layer_spec.h"
#include "model/packed_weights.h"
#include "model/stored_product.h"
#include "model/weights.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// The routing of rows to experts, [n_expert_used, n_rows] each.
struct RoutedRows {
  ggml_tensor* chosen;  // i32, numbers of experts
  ggml_tensor* routing_weights;
};

// Makes nodes of one graph. Tensors that it is given must outlive the graph.
class LayerOps {
 public:
  virtual ~LayerOps() = default;

  // Returns y [n_out, n_rows] = W x for a weight [n_in, n_out] of any type of ggml and float32 x [n_in, n_rows].
  virtual ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) = 0;
  // Makes the products of several weights with one x, y[i] of weights[i].
  virtual void products(ggml_context* context, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                        std::span<ggml_tensor*> y);
  // Returns contiguous x normed by its root mean square, times the weight [n] or [n, x->ne[1]], which may be null. spec
  // outlives the graph.
  virtual ggml_tensor* rms_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) = 0;
  // Does the same for rows that only products read, and may return them in the type in which products read them.
  virtual ggml_tensor* input_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) {
    return rms_norm(context, spec, weight, x);
  }
  // Returns activation(gate) * up for products, in the same way.
  virtual ggml_tensor* gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up);
  // Adds W y to x, in x's memory, and returns it.
  virtual ggml_tensor* add_product(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y);
  // Returns [1, 1, n_rows], the factors of LayerSpec::temperature for rows at these positions [n_rows], i32. spec
  // outlives the graph.
  virtual ggml_tensor* temperatures(ggml_context* context, const LayerSpec& spec, ggml_tensor* positions) = 0;
  // Returns [n_embd, n_rows]: for every row of float32 x [n_embd, n_rows] the sum of what its experts give, times their
  // routing weights, in the order in which they were chosen.
  virtual ggml_tensor* experts(ggml_context* context, const FeedForwardSpec& spec, const LayerWeights& weights,
                               const RoutedRows& routed, ggml_tensor* x) = 0;
};

// The operations on this machine's processor.
class CpuOps final : public LayerOps {
 public:
  // Takes the layer's weights converted for many rows, or null for products on the file's own types, and the thread
  // team that will run the graph. Both must outlive the graph.
  CpuOps(const PackedLayer* packed, Compute& compute) : packed_(packed), compute_(compute) {}

  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* rms_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* temperatures(ggml_context* context, const LayerSpec& spec, ggml_tensor* positions) override;
  ggml_tensor* experts(ggml_context* context, const FeedForwardSpec& spec, const LayerWeights& weights,
                       const RoutedRows& routed, ggml_tensor* x) override;

 private:
  const PackedLayer* packed_;
  Compute& compute_;
  QuantisedRows quantised_;
};

// The operations as ggml's own nodes, which every back end of ggml computes.
class GgmlOps : public LayerOps {
 public:
  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* rms_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) override;
  ggml_tensor* temperatures(ggml_context* context, const LayerSpec& spec, ggml_tensor* positions) override;
  ggml_tensor* experts(ggml_context* context, const FeedForwardSpec& spec, const LayerWeights& weights,
                       const RoutedRows& routed, ggml_tensor* x) override;
};

}  // namespace winnow
