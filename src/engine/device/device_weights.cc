#include "engine/device/device_weights.h"

#include <ggml.h>

#include <algorithm>
#include <map>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kAlignment = 256;
// ggml's kernels read whole blocks of rows, some numbers beyond a matrix's end.
constexpr std::size_t kPadding = 4096;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

ggml_context* make_context(std::size_t n_tensors) {
  ggml_init_params params{};
  params.mem_size = (n_tensors + 1) * ggml_tensor_overhead();
  params.no_alloc = true;
  return ggml_init(params);
}

// Returns the fields of all layers and of the model that name a tensor to be uploaded.
std::vector<ggml_tensor**> places_of(Weights& weights) {
  std::vector<ggml_tensor**> places = {&weights.output_norm.weight, &weights.output_norm.bias, &weights.output,
                                       &weights.output_b};
  for (LayerWeights& layer : weights.layers) {
    const std::vector<ggml_tensor**> of_layer = layer.places();
    places.insert(places.end(), of_layer.begin(), of_layer.end());
  }
  std::erase_if(places, [](ggml_tensor* const* place) { return *place == nullptr; });
  return places;
}

// Returns whether products convert the matrix for many rows.
bool is_converted(const ggml_tensor* tensor) { return tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_BF16; }

// Returns a tensor like `of` at an address of the buffer.
ggml_tensor* place_tensor(ggml_context* context, ggml_type type, const ggml_tensor* of, const device::Buffer& buffer,
                          std::byte* data) {
  ggml_tensor* tensor = ggml_new_tensor(context, type, GGML_MAX_DIMS, of->ne);
  ggml_set_name(tensor, of->name);
  tensor->data = data;
  tensor->buffer = buffer.buffer();
  return tensor;
}

}  // namespace

void DeviceWeights::ContextDeleter::operator()(ggml_context* context) const { ggml_free(context); }

DeviceWeights::DeviceWeights(device::Device& device, const Model::Impl& model)
    // The model's own tensors may be interleaved for another engine: these are as the file has them.
    : device_(device), weights_(load_weights(model.file, model.spec)) {
  weights_.token_embd = nullptr;  // rows are embedded on the processor
  const std::vector<ggml_tensor**> places = places_of(weights_);
  std::map<ggml_tensor*, std::size_t> offsets;  // RoPE's factors are shared by all layers
  std::size_t bytes = 0, most_converted = 0;
  for (ggml_tensor* const* place : places) {
    if (!offsets.emplace(*place, bytes).second) continue;
    if (!ggml_is_contiguous(*place)) {
      throw Error(ErrorCode::kInternal, std::string("the weight ") + (*place)->name + " is not stored in one piece");
    }
    bytes += aligned(ggml_nbytes(*place) + kPadding);
  }
  if (bytes > device.bytes_free()) {
    throw Error(ErrorCode::kOutOfMemory, "the model's weights take " + std::to_string(bytes >> 20) + " MiB, but " +
                                             device.info().id + " has " + std::to_string(device.bytes_free() >> 20) +
                                             " MiB free: use a smaller or more quantised model, or --device cpu");
  }
  buffer_ = device.allocate(bytes);
  context_.reset(make_context(offsets.size()));
  std::map<ggml_tensor*, ggml_tensor*> placed;
  for (const auto& [tensor, offset] : offsets) {
    std::byte* data = buffer_.data() + offset;
    device.fill_zero(data + ggml_nbytes(tensor), kPadding);
    device.upload(data, tensor->data, ggml_nbytes(tensor));
    placed[tensor] = place_tensor(context_.get(), tensor->type, tensor, buffer_, data);
  }
  for (ggml_tensor** place : places) *place = placed.at(*place);
  device.wait();
  for (const LayerWeights& layer : weights_.layers) {
    std::size_t of_layer = 0;
    for (const ggml_tensor* matrix : layer.matrices()) {
      if (is_converted(matrix)) of_layer += aligned(static_cast<std::size_t>(ggml_nelements(matrix)) * 2 + kPadding);
    }
    most_converted = std::max(most_converted, of_layer);
  }
  if (most_converted > 0) converted_ = device.allocate(most_converted);
}

bool DeviceWeights::can_convert(int layer) const {
  const std::vector<ggml_tensor*> matrices = weights_.layers[static_cast<std::size_t>(layer)].matrices();
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const ggml_tensor* matrix) { return matrix->type != GGML_TYPE_F32 && matrix->ne[0] % 8 == 0; });
}

const LayerWeights& DeviceWeights::converted(int layer) {
  if (layer == held_layer_) return layer_;
  held_layer_ = -1;  // until all of it is queued
  layer_ = weights_.layers[static_cast<std::size_t>(layer)];
  const std::vector<ggml_tensor**> places = layer_.places();
  converted_context_.reset(make_context(places.size()));
  const std::vector<ggml_tensor*> matrices = layer_.matrices();
  std::byte* data = converted_.data();
  for (ggml_tensor** place : places) {
    ggml_tensor* stored = *place;
    if (stored == nullptr || std::find(matrices.begin(), matrices.end(), stored) == matrices.end()) continue;
    if (!is_converted(stored)) continue;
    *place = place_tensor(converted_context_.get(), GGML_TYPE_BF16, stored, converted_, data);
    device_.dequantise_bf16(stored->type, stored->data, data, ggml_nelements(stored));
    data += aligned(static_cast<std::size_t>(ggml_nelements(stored)) * 2 + kPadding);
  }
  held_layer_ = layer;
  return layer_;
}

}  // namespace winnow
