#include "engine/device/pass_ops.h"

#include <ggml.h>

namespace winnow {

ggml_tensor* PassOps::converted(ggml_tensor* x) {
  if (x->type == GGML_TYPE_BF16) return x;
  if (x == rows_) return converted_rows_;
  rows_ = x;
  converted_rows_ = graph_.own(GGML_TYPE_BF16, x->ne[0], ggml_nrows(x), {&x, 1}, [this, x](ggml_tensor* node) {
    device_.queue(
        device::RowsToBf16{.from = static_cast<const float*>(x->data), .to = node->data, .n = ggml_nelements(x)});
  });
  return converted_rows_;
}

void PassOps::queue_product(const ggml_tensor* weight, const ggml_tensor* x, const ggml_tensor* y, bool adds) {
  device_.multiply(device::Product{.weight = weight->data,
                                   .x = x->data,
                                   .y = static_cast<float*>(y->data),
                                   .n_in = static_cast<int>(weight->ne[0]),
                                   .n_out = static_cast<int>(weight->ne[1]),
                                   .n_rows = static_cast<int>(x->ne[1]),
                                   .adds = adds});
}

ggml_tensor* PassOps::product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  // Routers and gates of shared experts stay as they are, and their rows are float32.
  if (weight->type != GGML_TYPE_BF16) return GgmlOps::product(context, weight, x);
  ggml_tensor* rows = converted(x);
  return graph_.own(GGML_TYPE_F32, weight->ne[1], rows->ne[1], {&rows, 1},
                    [=, this](ggml_tensor* node) { queue_product(weight, rows, node, false); });
}

ggml_tensor* PassOps::input_norm(ggml_context* /*context*/, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) {
  return graph_.own(GGML_TYPE_BF16, x->ne[0], x->ne[1], {&x, 1}, [=, this, eps = spec.eps](ggml_tensor* node) {
    device_.queue(device::NormedToBf16{.from = static_cast<const float*>(x->data),
                                       .weight = weight == nullptr ? nullptr : static_cast<const float*>(weight->data),
                                       .to = node->data,
                                       .eps = eps,
                                       .n = static_cast<int>(x->ne[0]),
                                       .n_rows = static_cast<int>(x->ne[1])});
  });
}

ggml_tensor* PassOps::gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up) {
  if (activation == Activation::kClampedSilu) return GgmlOps::gated(context, activation, gate, up);
  ggml_tensor* const inputs[] = {gate, up};
  return graph_.own(GGML_TYPE_BF16, gate->ne[0], gate->ne[1], inputs, [=, this](ggml_tensor* node) {
    device_.queue(device::GatedToBf16{.gate = static_cast<const float*>(gate->data),
                                      .up = static_cast<const float*>(up->data),
                                      .to = node->data,
                                      .n = ggml_nelements(gate),
                                      .is_gelu = activation == Activation::kGelu});
  });
}

ggml_tensor* PassOps::add_product(ggml_context* /*context*/, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y) {
  ggml_tensor* rows = converted(y);
  return graph_.own_in_place(x, rows, [=, this](ggml_tensor* node) { queue_product(weight, rows, node, true); });
}

}  // namespace winnow
