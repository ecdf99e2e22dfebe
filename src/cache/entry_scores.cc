#include "cache/entry_scores.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <ostream>
#include <utility>

#include "kernels/entries/rows.h"
#include "winnow/error.h"

namespace winnow {

class EntryScores::HeadScores {
 public:
  HeadScores(std::size_t n, PagePool& pool) : reservation_(pool.reserve(n * row_bytes(kStored, 1))) {
    rows_.resize(n * row_bytes(kStored, 1));
  }

  std::vector<std::byte>& rows() { return rows_; }
  const std::vector<std::byte>& rows() const { return rows_; }
  std::size_t size() const { return rows_.size() / row_bytes(kStored, 1); }
  std::vector<float> values() const {
    std::vector<float> values(size());
    kernels::load_row(kStored, rows_.data(), values.data(), static_cast<int>(values.size()));
    return values;
  }

 private:
  Reservation reservation_;
  std::vector<std::byte> rows_;
};

EntryScores::EntryScores(const CacheShape& shape, std::shared_ptr<PagePool> pool) : pool_(std::move(pool)) {
  for (const LayerShape& layer : shape.layers) {
    layers_.emplace_back(static_cast<std::size_t>(layer.n_evictable_heads()));
  }
}

std::shared_ptr<const EntryScores::HeadScores> EntryScores::make(std::span<const float> scores) const {
  if (scores.empty()) return nullptr;
  const auto made = std::make_shared<HeadScores>(scores.size(), *pool_);
  kernels::store_row(kStored, scores.data(), made->rows().data(), static_cast<int>(scores.size()));
  return made;
}

void EntryScores::set(int layer, int kv_head, std::shared_ptr<const HeadScores> scores) noexcept {
  layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(kv_head)] = std::move(scores);
}

std::vector<std::vector<float>> EntryScores::layer(int layer) const {
  std::vector<std::vector<float>> scores;
  for (const auto& head : layers_[static_cast<std::size_t>(layer)]) {
    scores.push_back(head == nullptr ? std::vector<float>{} : head->values());
  }
  return scores;
}

std::size_t EntryScores::bytes() const {
  std::size_t n = 0;
  for (const auto& layer : layers_) {
    for (const auto& head : layer) n += head == nullptr ? 0 : head->rows().size();
  }
  return n;
}

void EntryScores::clear() {
  for (auto& layer : layers_) std::fill(layer.begin(), layer.end(), nullptr);
}

void EntryScores::write(std::ostream& out, int layer) const {
  for (const auto& head : layers_[static_cast<std::size_t>(layer)]) {
    const auto n = static_cast<std::int32_t>(head == nullptr ? 0 : head->size());
    out.write(reinterpret_cast<const char*>(&n), sizeof(n));
    if (n > 0) {
      out.write(reinterpret_cast<const char*>(head->rows().data()), static_cast<std::streamsize>(head->rows().size()));
    }
  }
  if (!out) throw Error(ErrorCode::kIo, "the session could not be written: check the free space of the disk");
}

void EntryScores::read(std::istream& in, int layer, const RaggedCache& cache) {
  const auto require = [](bool is_sound) {
    if (is_sound) return;
    throw Error(ErrorCode::kBadFile,
                "the stored scores do not match the stored entries: the file is corrupt, save the session again");
  };
  std::vector<std::shared_ptr<const HeadScores>>& heads = layers_[static_cast<std::size_t>(layer)];
  for (std::size_t h = 0; h < heads.size(); ++h) {
    heads[h] = nullptr;
    std::int32_t n = 0;
    in.read(reinterpret_cast<char*>(&n), sizeof(n));
    require(in && n >= 0 && n <= cache.n_entries(layer, static_cast<int>(h)));
    if (n == 0) continue;
    const auto head = std::make_shared<HeadScores>(static_cast<std::size_t>(n), *pool_);
    in.read(reinterpret_cast<char*>(head->rows().data()), static_cast<std::streamsize>(head->rows().size()));
    require(static_cast<bool>(in));
    for (const float score : head->values()) require(std::isfinite(score));
    heads[h] = head;
  }
}

}  // namespace winnow
