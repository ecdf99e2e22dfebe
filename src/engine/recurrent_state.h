// The state that the recurrent layers of one sequence carry from token to token: numbers of a fixed size for each
// layer, whatever the sequence's length.
//
// A turn or a step reads the present state and writes the next one to other memory; commit() makes that the present one
// and discard() forgets it, so a turn that fails leaves nothing behind. Copies (forks) share memory until one of them
// is written. All of it counts towards the pool's limit. Not thread-safe: whoever writes holds the engine's mutex.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "model/layer_spec.h"

namespace winnow {

// The recurrent state of one sequence.
class RecurrentState {
 public:
  // Makes the state before the first token: zeros, which take no memory yet.
  RecurrentState(const ModelSpec& spec, std::shared_ptr<PagePool> pool);
  RecurrentState(const RecurrentState& other);
  RecurrentState& operator=(const RecurrentState& other);
  RecurrentState(RecurrentState&&) noexcept = default;
  RecurrentState& operator=(RecurrentState&&) noexcept = default;

  // The memory that a recurrent layer's rows read and write. `from` is the state that the rows before them have left,
  // those of the same turn included; it may be the same memory as `to`.
  struct Update {
    const float* from = nullptr;
    float* to = nullptr;
  };
  // Returns where the next rows of a layer read and write. Throws Error(kOutOfMemory) where the pool has no room.
  Update update(int layer);
  // Returns the state after the rows so far, those of the turn under way included.
  std::span<const float> latest(int layer) const;
  void commit();
  void discard();

  bool is_recurrent(int layer) const { return layer_size(layer) > 0; }
  std::size_t layer_size(int layer) const { return layers_[static_cast<std::size_t>(layer)].size; }
  // Returns the present state of a layer; empty before the first token.
  std::span<const float> layer(int layer) const;
  void restore(int layer, std::span<const float> values);  // sets it; throws as update()
  // Returns the bytes that it holds, shared or not.
  std::size_t bytes() const;

 private:
  struct Numbers {
    Numbers(std::size_t size, PagePool& pool) : reservation(pool.reserve(size * sizeof(float))), values(size) {}
    Reservation reservation;
    std::vector<float> values;
  };
  struct Layer {
    std::size_t size = 0;
    std::shared_ptr<Numbers> now = nullptr;   // null: zeros
    std::shared_ptr<Numbers> next = nullptr;  // never shared
    bool is_written = false;
  };
  std::shared_ptr<PagePool> pool_;
  std::vector<Layer> layers_;
};

}  // namespace winnow
