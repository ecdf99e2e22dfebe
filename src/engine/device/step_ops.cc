#include "engine/device/step_ops.h"

#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace winnow {
namespace {

using device::EightBitRows;
using device::WeightType;

WeightType type_of(const ggml_tensor* weight) { return static_cast<WeightType>(weight->type); }

float* floats_of(const ggml_tensor* tensor) { return static_cast<float*>(tensor->data); }

bool are_rows(const ggml_tensor* x) {
  return x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && ggml_is_matrix(x) && x->ne[0] % 32 == 0 &&
         x->ne[1] <= device::kMaxProductRows;
}

// Parts of one node begin at multiples of so many numbers.
constexpr std::int64_t kPartNumbers = 64;

}  // namespace

// The rows that products read, in one or both of their forms.
struct StepOps::Rows {
  ggml_tensor* floats = nullptr;
  ggml_tensor* node = nullptr;  // has the rows in 8 bits, and the floats where it is one with them
  std::size_t offset = 0;       // of those in 8 bits, in bytes
  bool are_floats_read = false;

  int n() const { return static_cast<int>(floats->ne[0]); }
  int n_rows() const { return static_cast<int>(floats->ne[1]); }
  EightBitRows eight() const {
    if (node == nullptr) return {};
    std::byte* at = static_cast<std::byte*>(node->data) + offset;
    return {reinterpret_cast<std::int8_t*>(at),
            reinterpret_cast<float*>(at + device::eight_bit_number_bytes(n_rows(), n()))};
  }
};

bool StepOps::can_multiply(const ggml_tensor* weight, const ggml_tensor* x) {
  return are_rows(x) && device::is_weight_type(weight->type) && ggml_is_matrix(weight) && ggml_is_contiguous(weight) &&
         weight->ne[0] % 32 == 0;
}

std::shared_ptr<StepOps::Rows> StepOps::new_rows(ggml_context* context, std::span<ggml_tensor* const> inputs,
                                                 const ggml_tensor* like, std::function<void(const Rows&)> queue) {
  auto rows = std::make_shared<Rows>();
  const std::int64_t n_floats = like->ne[0] * like->ne[1];
  const auto eight_floats = static_cast<std::int64_t>(
      device::eight_bit_bytes(static_cast<int>(like->ne[1]), static_cast<int>(like->ne[0])) / sizeof(float));
  rows->offset = static_cast<std::size_t>(n_floats) * sizeof(float);
  rows->node = graph_.own(GGML_TYPE_F32, n_floats + eight_floats, 1, inputs,
                          [rows, queue = std::move(queue)](ggml_tensor*) { queue(*rows); });
  rows->floats = ggml_view_2d(context, rows->node, like->ne[0], like->ne[1],
                              static_cast<std::size_t>(like->ne[0]) * sizeof(float), 0);
  rows_[rows->floats] = rows;
  return rows;
}

std::shared_ptr<StepOps::Rows> StepOps::rows_of(std::span<ggml_tensor* const> weights, ggml_tensor* x) {
  std::shared_ptr<Rows>& rows = rows_[x];
  if (rows == nullptr) {
    rows = std::make_shared<Rows>();
    rows->floats = x;
  }
  for (const ggml_tensor* weight : weights) {
    if (!can_multiply(weight, x) || device::is_float_type(type_of(weight))) {
      rows->are_floats_read = true;
    } else if (rows->node == nullptr) {
      const std::size_t bytes = device::eight_bit_bytes(rows->n_rows(), rows->n());
      rows->node = graph_.own(
          GGML_TYPE_I8, static_cast<std::int64_t>(bytes), 1, {&x, 1}, [&device = device_, rows](ggml_tensor*) {
            device.queue(device::QuantiseRows{
                .x = floats_of(rows->floats), .to = rows->eight(), .n_rows = rows->n_rows(), .n = rows->n()});
          });
    }
  }
  return rows;
}

namespace {

device::VectorProduct plan_of(const ggml_tensor* floats, bool reads_floats, const EightBitRows& eight) {
  device::VectorProduct plan = {};
  plan.n_in = static_cast<int>(floats->ne[0]);
  plan.n_rows = static_cast<int>(floats->ne[1]);
  plan.x = eight;
  plan.x_float = reads_floats ? floats_of(floats) : nullptr;
  return plan;
}

device::ProductPart part_of(const ggml_tensor* weight, float* y, const float* add) {
  return {.weight = weight->data,
          .type = type_of(weight),
          .n_out = static_cast<int>(weight->ne[1]),
          .y = y,
          .bias = nullptr,
          .add = add};
}

}  // namespace

ggml_tensor* StepOps::product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  ggml_tensor* y = nullptr;
  products(context, {&weight, 1}, x, {&y, 1});
  return y;
}

void StepOps::products(ggml_context* context, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                       std::span<ggml_tensor*> y) {
  const std::shared_ptr<Rows> rows = rows_of(weights, x);
  std::vector<ggml_tensor*> taken;
  std::vector<std::int64_t> offsets;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!can_multiply(weights[i], x) || taken.size() == device::kMaxProductParts) {
      y[i] = can_multiply(weights[i], x) ? product(context, weights[i], x) : GgmlOps::product(context, weights[i], x);
      continue;
    }
    taken.push_back(weights[i]);
    offsets.push_back(n);
    n += (weights[i]->ne[1] * x->ne[1] + kPartNumbers - 1) / kPartNumbers * kPartNumbers;
    y[i] = nullptr;
  }
  if (taken.empty()) return;
  std::vector<ggml_tensor*> inputs;
  const bool reads_floats =
      std::any_of(taken.begin(), taken.end(), [](const ggml_tensor* w) { return device::is_float_type(type_of(w)); });
  if (reads_floats) inputs.push_back(rows->floats);
  if (rows->node != nullptr) inputs.push_back(rows->node);
  ggml_tensor* node = graph_.own(
      GGML_TYPE_F32, n, 1, inputs, [&device = device_, rows, reads_floats, taken, offsets](ggml_tensor* made) {
        device::VectorProduct plan = plan_of(rows->floats, reads_floats, rows->eight());
        for (std::size_t i = 0; i < taken.size(); ++i) {
          plan.parts[plan.n_parts++] = part_of(taken[i], floats_of(made) + offsets[i], nullptr);
        }
        device.queue(plan);
      });
  std::size_t at = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (y[i] != nullptr) continue;
    y[i] = ggml_view_2d(context, node, weights[i]->ne[1], x->ne[1],
                        static_cast<std::size_t>(weights[i]->ne[1]) * sizeof(float),
                        static_cast<std::size_t>(offsets[at++]) * sizeof(float));
  }
}

ggml_tensor* StepOps::input_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) {
  const bool is_plain = weight == nullptr || (weight->type == GGML_TYPE_F32 && ggml_nelements(weight) == x->ne[0]);
  if (!is_plain || !are_rows(x) || x->ne[0] > device::kMaxNormNumbers) return rms_norm(context, spec, weight, x);
  return new_rows(context, {&x, 1}, x,
                  [&device = device_, weight, x, eps = spec.eps](const Rows& rows) {
                    device.queue(device::RmsNormRows{.x = floats_of(x),
                                                     .add = nullptr,
                                                     .weight = weight == nullptr ? nullptr : floats_of(weight),
                                                     .eps = eps,
                                                     .out = rows.are_floats_read ? floats_of(rows.floats) : nullptr,
                                                     .eight = rows.eight(),
                                                     .n_rows = rows.n_rows(),
                                                     .n = rows.n()});
                  })
      ->floats;
}

ggml_tensor* StepOps::gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up) {
  if (activation == Activation::kClampedSilu || !are_rows(gate) || !are_rows(up)) {
    return GgmlOps::gated(context, activation, gate, up);
  }
  ggml_tensor* const inputs[] = {gate, up};
  const auto kind = activation == Activation::kGelu ? device::GateActivation::kGelu : device::GateActivation::kSilu;
  return new_rows(context, inputs, gate,
                  [&device = device_, gate, up, kind](const Rows& rows) {
                    device.queue(device::GatedRows{.gate = floats_of(gate),
                                                   .up = floats_of(up),
                                                   .activation = kind,
                                                   .out = rows.are_floats_read ? floats_of(rows.floats) : nullptr,
                                                   .eight = rows.eight(),
                                                   .n_rows = rows.n_rows(),
                                                   .n = rows.n()});
                  })
      ->floats;
}

ggml_tensor* StepOps::add_product(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y) {
  const std::shared_ptr<Rows> rows = rows_of({&weight, 1}, y);
  if (!can_multiply(weight, y)) return GgmlOps::add_product(context, x, weight, y);
  const bool reads_floats = device::is_float_type(type_of(weight));
  return graph_.own_in_place(x, reads_floats ? rows->floats : rows->node,
                             [&device = device_, rows, reads_floats, weight](ggml_tensor* sum) {
                               device::VectorProduct plan = plan_of(rows->floats, reads_floats, rows->eight());
                               plan.parts[plan.n_parts++] = part_of(weight, floats_of(sum), floats_of(sum));
                               device.queue(plan);
                             });
}

}  // namespace winnow
