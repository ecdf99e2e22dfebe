// The summaries of layers that cuts of one sequence on several machines exchange: the number of heads, the layer's
// weight, for every head four numbers of entries, and then, if all layers are ranked together, the best candidates of
// each head.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "eviction/cut/cut_state.h"
#include "winnow/error.h"

namespace winnow {
namespace {

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <class T>
  T get() {
    T value{};
    require(in_.size() >= sizeof(T));
    std::memcpy(&value, in_.data(), sizeof(T));
    in_ = in_.subspan(sizeof(T));
    return value;
  }
  std::size_t left() const { return in_.size(); }
  static void require(bool is_sound) {
    if (!is_sound) throw Error(ErrorCode::kInternal, "a cut was told of a layer of another shape");
  }

 private:
  std::span<const std::byte> in_;
};

}  // namespace

std::vector<std::byte> Cut::State::summary_of_newest() const {
  std::vector<std::byte> summary;
  const int l = static_cast<int>(layers.size()) - 1;
  const ScoredLayer& layer = layers[l];
  put(summary, static_cast<std::int32_t>(n_kv_head(l)));
  put(summary, layer.weight);
  std::vector<std::int64_t> n_ranked(n_kv_head(l));
  for (int h = 0; h < n_kv_head(l); ++h) {
    if (parts.layers->is_global() && shape.fixed_budget.empty()) n_ranked[h] = std::ssize(layer.stored[h]);
    // A candidate among the best of all layers counts towards the high-precision entries of other layers even if it
    // does not stay.
    if (h < std::ssize(newest_high)) n_ranked[h] = std::max(n_ranked[h], newest_high[h]);
    put(summary, layer.n_sinks[h]);
    put(summary, layer.n_window[h]);
    put(summary, layer.n_candidates[h]);
    put(summary, n_ranked[h]);
  }
  for (int h = 0; h < n_kv_head(l); ++h) {
    for (std::int64_t i = 0; i < n_ranked[h]; ++i) put(summary, layer.candidate(h, i));
  }
  return summary;
}

void Cut::State::read_layer(std::span<const std::byte> summary) {
  Reader reader(summary);
  const int l = next_layer();
  ScoredLayer layer;
  layer.is_elsewhere = true;
  Reader::require(reader.get<std::int32_t>() == n_kv_head(l));
  layer.weight = reader.get<double>();
  std::vector<std::int64_t> n_ranked;
  for (int h = 0; h < n_kv_head(l); ++h) {
    layer.n_sinks.push_back(reader.get<std::int32_t>());
    layer.n_window.push_back(reader.get<std::int32_t>());
    layer.n_candidates.push_back(reader.get<std::int32_t>());
    n_ranked.push_back(reader.get<std::int64_t>());
    layer.n_high.push_back(0);
    Reader::require(n_ranked[h] >= 0 && n_ranked[h] <= layer.n_candidates[h]);
    if (layer.n_protected(h) + layer.n_candidates[h] != shape.n_tokens) is_prefill = false;
  }
  for (int h = 0; h < n_kv_head(l); ++h) {
    Reader::require(static_cast<std::size_t>(n_ranked[h]) <= reader.left() / sizeof(RankedCandidate));
    std::vector<RankedCandidate>& ranked = layer.ranked.emplace_back();
    for (std::int64_t i = 0; i < n_ranked[h]; ++i) ranked.push_back(reader.get<RankedCandidate>());
    layer.stored.emplace_back(n_ranked[h]);
  }
  Reader::require(reader.left() == 0);
  layers.push_back(std::move(layer));
}

}  // namespace winnow
