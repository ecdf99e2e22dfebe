#include "engine/device/device_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/round_up.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kAlignment = 256;
// ggml's kernels read whole blocks of rows, some numbers beyond a matrix's end.
constexpr std::size_t kPadding = 4096;

ggml_context* make_context(std::size_t n_tensors) {
  ggml_init_params params{};
  params.mem_size = (n_tensors + 1) * ggml_tensor_overhead();
  params.no_alloc = true;
  return ggml_init(params);
}

// Returns the fields of all layers and of the model that name a tensor to be uploaded.
std::vector<ggml_tensor**> places_of(Weights& weights) {
  std::vector<ggml_tensor**> places = {&weights.output_norm.weight, &weights.output_norm.bias, &weights.output,
                                       &weights.output_b, &weights.logits_scale};
  for (LayerWeights& layer : weights.layers) {
    const std::vector<ggml_tensor**> of_layer = layer.places();
    places.insert(places.end(), of_layer.begin(), of_layer.end());
  }
  std::erase_if(places, [](ggml_tensor* const* place) { return *place == nullptr; });
  return places;
}

// Returns the bytes that a tensor takes on the device.
std::size_t bytes_of(const ggml_tensor* tensor) { return round_up(ggml_nbytes(tensor) + kPadding, kAlignment); }

// Returns whether products convert the matrix for many rows.
bool is_converted(const ggml_tensor* tensor) { return tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_BF16; }

// Returns the bytes that a matrix takes once it is converted.
std::size_t converted_bytes(const ggml_tensor* tensor) {
  return round_up(static_cast<std::size_t>(ggml_nelements(tensor)) * 2 + kPadding, kAlignment);
}

// The bytes that the weights take on a device.
struct WeightBytes {
  std::size_t all = 0;
  std::vector<std::size_t> matrices;  // [layer], part of `all`
  std::size_t converted = 0;          // of the layer that takes most, beside `all`

  // Return the bytes of all but the matrices of the layers from n on, and of a slot of these.
  std::size_t resident(std::size_t n) const {
    return all - std::accumulate(matrices.begin() + static_cast<std::ptrdiff_t>(n), matrices.end(), std::size_t{0});
  }
  std::size_t slot(std::size_t n) const {
    return n == matrices.size() ? 0
                                : *std::max_element(matrices.begin() + static_cast<std::ptrdiff_t>(n), matrices.end());
  }
  // Returns the bytes with so many slots, or as many as there are layers for, and with a converted layer.
  std::size_t with(std::size_t n, std::size_t n_slots = 1) const {
    return resident(n) + converted + std::min(n_slots, matrices.size() - n) * slot(n);
  }
};

std::vector<const ggml_tensor*> matrices_of(LayerWeights& layer) {
  std::vector<const ggml_tensor*> matrices;
  for (ggml_tensor* const* place : layer.places_of_products()) {
    if (*place != nullptr) matrices.push_back(*place);
  }
  return matrices;
}

WeightBytes count_bytes(Weights& weights) {
  WeightBytes bytes;
  std::set<const ggml_tensor*> counted;  // RoPE's factors are shared by all layers
  for (ggml_tensor* const* place : places_of(weights)) {
    if (!counted.insert(*place).second) continue;
    if (!ggml_is_contiguous(*place)) {
      throw Error(ErrorCode::kInternal, std::string("the weight ") + (*place)->name + " is not stored in one piece");
    }
    bytes.all += bytes_of(*place);
  }
  for (LayerWeights& layer : weights.layers) {
    std::size_t of_layer = 0, converted = 0;
    for (const ggml_tensor* matrix : matrices_of(layer)) of_layer += bytes_of(matrix);
    for (const ggml_tensor* matrix : layer.matrices()) converted += is_converted(matrix) ? converted_bytes(matrix) : 0;
    bytes.matrices.push_back(of_layer);
    bytes.converted = std::max(bytes.converted, converted);
  }
  return bytes;
}

// Returns the free bytes of a device that weights may take if not all fit: the rest is for the cache and what is
// computed.
std::size_t room_for_weights(const device::Device& device) { return device.bytes_free() - device.bytes_free() / 8; }

// Returns those that they may take if all fit: graphs need some of the rest.
std::size_t room_for_all_weights(const device::Device& device) {
  return device.bytes_free() - device.bytes_free() / 32;
}

// Returns the number of layers whose matrices stay on a device.
std::size_t count_resident(const WeightBytes& bytes, const device::Device& device, int asked) {
  const std::size_t n_layers = bytes.matrices.size(), free = device.bytes_free();
  const auto fail = [&](std::size_t n, const std::string& way_out) {
    const std::string of = n == n_layers ? "" : " with the matrices of " + std::to_string(n) + " layers";
    throw Error(ErrorCode::kOutOfMemory, "the model's weights take " + std::to_string(bytes.with(n) >> 20) + " MiB" +
                                             of + ", but " + device.info().id + " has " + std::to_string(free >> 20) +
                                             " MiB free: " + way_out);
  };
  if (asked >= 0) {
    const std::size_t n = std::min(static_cast<std::size_t>(asked), n_layers);
    if (bytes.with(n) > free) fail(n, "let fewer layers stay there (-ngl), or use --device cpu");
    return n;
  }
  if (bytes.with(n_layers) <= room_for_all_weights(device)) return n_layers;
  const std::size_t most = room_for_weights(device);
  std::size_t n = n_layers;
  while (n > 0 && bytes.with(n, DeviceWeights::kSlots) > most) --n;
  if (bytes.with(n) > most) fail(n, "use a smaller or more quantised model, or --device cpu");
  return n;
}

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

DeviceWeights::DeviceWeights(device::Device& device, const Model::Impl& model, int n_resident)
    // The model's own tensors may be interleaved for another engine: these are as the file has them.
    : device_(device), weights_(load_weights(model.file, model.spec)) {
  weights_.token_embd = nullptr;  // rows are embedded on the processor
  const WeightBytes bytes = count_bytes(weights_);
  const std::size_t n = count_resident(bytes, device, n_resident), n_layers = weights_.layers.size();
  n_resident_ = static_cast<int>(n);
  if (bytes.with(n, kSlots) > room_for_weights(device)) n_slots_ = 1;
  buffer_ = device.allocate(bytes.resident(n));
  for (std::size_t i = 0; i < std::min(n_slots_, n_layers - n); ++i) slots_[i] = device.allocate(bytes.slot(n));

  const std::vector<ggml_tensor**> places = places_of(weights_);
  context_.reset(make_context(places.size()));
  std::map<const ggml_tensor*, ggml_tensor*> placed;
  matrices_.resize(n_layers);
  for (std::size_t l = n; l < n_layers; ++l) {
    const device::Buffer& slot = slots_[slot_of(static_cast<int>(l))];
    std::byte* to = slot.data();
    for (const ggml_tensor* matrix : matrices_of(weights_.layers[l])) {
      placed[matrix] = place_tensor(context_.get(), matrix->type, matrix, slot, to);
      matrices_[l].push_back({.from = matrix, .to = to});
      to += bytes_of(matrix);
    }
  }
  std::byte* to = buffer_.data();
  for (ggml_tensor* const* place : places) {
    ggml_tensor*& on_device = placed[*place];
    if (on_device != nullptr) continue;
    device.upload(to, (*place)->data, ggml_nbytes(*place));
    device.fill_zero(to + ggml_nbytes(*place), kPadding);
    on_device = place_tensor(context_.get(), (*place)->type, *place, buffer_, to);
    to += bytes_of(*place);
  }
  for (ggml_tensor** place : places) *place = placed.at(*place);
  device.wait();

  if (bytes.converted > 0) converted_ = device.allocate(bytes.converted);
}

const LayerWeights& DeviceWeights::use(int layer) {
  if (is_streamed(layer)) {
    const auto fetch_unless_there = [this](int streamed) {
      if (in_slot_[slot_of(streamed)] != streamed) fetch(streamed);
    };
    fetch_unless_there(layer);
    if (uploaded_layer_ == layer) await_upload();
    const int last = static_cast<int>(weights_.layers.size()) - 1, next = layer == last ? n_resident_ : layer + 1;
    if (slot_of(next) != slot_of(layer)) fetch_unless_there(next);
  }
  return weights_.layers[static_cast<std::size_t>(layer)];
}

// Begins to copy a layer's matrices to its slot. All that reads those of another layer there must have been queued.
void DeviceWeights::fetch(int streamed_layer) {
  await_upload();
  int& in_slot = in_slot_[slot_of(streamed_layer)];
  in_slot = -1;  // until all is queued
  std::vector<ByteCopy> copies;
  for (const Streamed& matrix : matrices_[static_cast<std::size_t>(streamed_layer)]) {
    const std::size_t bytes = ggml_nbytes(matrix.from);
    device_.fill_zero(matrix.to + bytes, kPadding);
    copies.push_back({.to = matrix.to, .from = static_cast<const std::byte*>(matrix.from->data), .bytes = bytes});
  }
  upload_ = device_.upload_beside(std::move(copies));
  in_slot = uploaded_layer_ = streamed_layer;
}

// Lets what is queued from now on wait for the upload that runs, if one does.
void DeviceWeights::await_upload() {
  if (upload_ == nullptr) return;
  const std::unique_ptr<device::SideUpload> upload = std::move(upload_);
  const int layer = std::exchange(uploaded_layer_, -1);
  try {
    upload->join();
  } catch (...) {
    in_slot_[slot_of(layer)] = -1;
    throw;
  }
}

bool DeviceWeights::can_convert(int layer) const {
  const std::vector<ggml_tensor*> matrices = weights_.layers[static_cast<std::size_t>(layer)].matrices();
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const ggml_tensor* matrix) { return matrix->type != GGML_TYPE_F32 && matrix->ne[0] % 8 == 0; });
}

const LayerWeights& DeviceWeights::converted(int layer) {
  const LayerWeights& stored_layer = use(layer);  // of which routers and experts are not converted
  if (layer == held_layer_) return layer_;
  held_layer_ = -1;  // until all of it is queued
  layer_ = stored_layer;
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
    data += converted_bytes(stored);
  }
  held_layer_ = layer;
  return layer_;
}

}  // namespace winnow
