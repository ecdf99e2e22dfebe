#include "engine/recurrent_state.h"

#include <algorithm>
#include <utility>

namespace winnow {

RecurrentState::RecurrentState(const ModelSpec& spec, std::shared_ptr<PagePool> pool) : pool_(std::move(pool)) {
  for (const LayerSpec& layer : spec.layers) {
    layers_.push_back({.size = static_cast<std::size_t>(layer.recurrence.state_size(spec.n_embd))});
  }
}

RecurrentState::RecurrentState(const RecurrentState& other) : pool_(other.pool_), layers_(other.layers_) {
  for (Layer& layer : layers_) {
    layer.next.reset();
    layer.is_written = false;
  }
}

RecurrentState& RecurrentState::operator=(const RecurrentState& other) {
  if (this != &other) *this = RecurrentState(other);
  return *this;
}

RecurrentState::Update RecurrentState::update(int index) {
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  if (layer.now == nullptr) layer.now = std::make_shared<Numbers>(layer.size, *pool_);
  if (layer.next == nullptr) layer.next = std::make_shared<Numbers>(layer.size, *pool_);
  const bool was_written = std::exchange(layer.is_written, true);
  return {.from = (was_written ? layer.next : layer.now)->values.data(), .to = layer.next->values.data()};
}

std::span<const float> RecurrentState::latest(int index) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  return layer.is_written ? std::span<const float>(layer.next->values) : this->layer(index);
}

void RecurrentState::commit() {
  for (Layer& layer : layers_) {
    if (!layer.is_written) continue;
    std::swap(layer.now, layer.next);
    if (layer.next.use_count() > 1) layer.next.reset();  // a fork's
    layer.is_written = false;
  }
}

void RecurrentState::discard() {
  for (Layer& layer : layers_) layer.is_written = false;
}

std::span<const float> RecurrentState::layer(int index) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  if (layer.now == nullptr) return {};
  return layer.now->values;
}

void RecurrentState::restore(int index, std::span<const float> values) {
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  layer.now.reset();
  if (values.empty()) return;
  layer.now = std::make_shared<Numbers>(layer.size, *pool_);
  std::copy(values.begin(), values.end(), layer.now->values.begin());
}

std::size_t RecurrentState::bytes() const {
  std::size_t n = 0;
  for (const Layer& layer : layers_) {
    n += ((layer.now != nullptr ? 1 : 0) + (layer.next != nullptr ? 1 : 0)) * layer.size * sizeof(float);
  }
  return n;
}

}  // namespace winnow
