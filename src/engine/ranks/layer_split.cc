// Decides which rank of a pipeline holds which layers.
#include <ggml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/ranks/pipeline.h"
#include "gguf/gguf_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns whether a range may begin with this layer: no layer from here on attends to the entries of an earlier one.
bool may_begin(const ModelSpec& spec, int layer) {
  return std::all_of(spec.layers.begin() + layer, spec.layers.end(), [&](const LayerSpec& later) {
    return later.kind != LayerKind::kSharedAttention || later.kv_layer >= layer;
  });
}

// Returns the bytes [n_layer] of the file's layers; the last one includes the output head. Embeddings do not count,
// since only the rows of tokens are read.
std::vector<std::uint64_t> layer_bytes(const ModelSpec& spec, const GgufFile& file) {
  std::vector<std::uint64_t> bytes(spec.layers.size());
  for (std::int64_t i = 0; i < file.n_tensors(); ++i) {
    const ggml_tensor* tensor = file.tensor(i);
    const std::string_view name = ggml_get_name(tensor);
    if (name.find("token_embd") != std::string_view::npos) continue;
    std::size_t layer = name.starts_with("output") ? bytes.size() - 1 : 0;
    constexpr std::string_view kPrefix = "blk.";
    if (name.starts_with(kPrefix)) {
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
      if (layer >= bytes.size()) continue;  // a layer that predicts further tokens (MTP)
    }
    bytes[layer] += ggml_nbytes(tensor);
  }
  const ggml_tensor* embeddings = file.find_tensor("token_embd.weight");
  if (file.find_tensor("output.weight") == nullptr && embeddings != nullptr) bytes.back() += ggml_nbytes(embeddings);
  return bytes;
}

// Returns where ranges of at most `most` bytes begin. It is greedy: each rank is filled, leaving one layer for every
// later rank. Returns nothing if there is no such split.
std::vector<int> begins_within(const ModelSpec& spec, const std::vector<std::uint64_t>& bytes, int n_ranks,
                               std::uint64_t most) {
  const int n_layer = spec.n_layer();
  // reach[r][l]: whether r ranks can hold the layers from l on.
  std::vector<std::vector<bool>> reach(static_cast<std::size_t>(n_ranks) + 1,
                                       std::vector<bool>(static_cast<std::size_t>(n_layer) + 1));
  std::vector<std::vector<int>> next(reach.size(), std::vector<int>(static_cast<std::size_t>(n_layer) + 1));
  reach[0][static_cast<std::size_t>(n_layer)] = true;
  for (std::size_t r = 1; r < reach.size(); ++r) {
    for (int l = n_layer; l-- > 0;) {
      if (!may_begin(spec, l)) continue;
      std::uint64_t sum = 0;
      for (int end = l + 1; end <= n_layer; ++end) {
        sum += bytes[static_cast<std::size_t>(end) - 1];
        if (sum > most) break;
        if (!reach[r - 1][static_cast<std::size_t>(end)]) continue;
        reach[r][static_cast<std::size_t>(l)] = true;
        next[r][static_cast<std::size_t>(l)] = end;
      }
    }
  }
  std::vector<int> begins;
  if (!reach.back()[0]) return begins;
  int at = 0;
  for (std::size_t r = reach.size() - 1; r > 0; --r) {
    begins.push_back(at);
    at = next[r][static_cast<std::size_t>(at)];
  }
  return begins;
}

// Returns where the ranges of n_ranks ranks begin such that the largest is smallest: a binary search over its bytes.
// Throws Error(kInvalidArgument) if there are too many ranks.
std::vector<int> even_begins(const ModelSpec& spec, const GgufFile& file, int n_ranks) {
  const std::vector<std::uint64_t> bytes = layer_bytes(spec, file);
  std::uint64_t enough = 0, too_few = 0;
  for (const std::uint64_t n : bytes) enough += n;
  std::vector<int> best = begins_within(spec, bytes, n_ranks, enough);
  if (best.empty()) {
    int n_parts = 0;
    for (int l = 0; l < spec.n_layer(); ++l) n_parts += may_begin(spec, l) ? 1 : 0;
    throw Error(ErrorCode::kInvalidArgument, "the model's " + std::to_string(spec.n_layer()) +
                                                 " layers can be split among at most " + std::to_string(n_parts) +
                                                 " ranks, not " + std::to_string(n_ranks) + ": start fewer");
  }
  while (enough - too_few > 1) {
    const std::uint64_t most = too_few + (enough - too_few) / 2;
    std::vector<int> begins = begins_within(spec, bytes, n_ranks, most);
    if (begins.empty()) {
      too_few = most;
    } else {
      enough = most;
      best = std::move(begins);
    }
  }
  return best;
}

}  // namespace

std::vector<LayerRange> split_layers(const ModelSpec& spec, const GgufFile& file, int n_ranks,
                                     std::span<const int> first_layers) {
  if (!first_layers.empty() && std::ssize(first_layers) != n_ranks - 1) {
    throw Error(ErrorCode::kInvalidArgument, "layers for " + std::to_string(first_layers.size() + 1) +
                                                 " ranks were given, but there are " + std::to_string(n_ranks) +
                                                 ": name the first layer of every rank but the first one");
  }
  std::vector<int> begins = {0};
  if (first_layers.empty() && n_ranks > 1) {
    begins = even_begins(spec, file, n_ranks);
  } else {
    begins.insert(begins.end(), first_layers.begin(), first_layers.end());
  }
  for (std::size_t r = 1; r < begins.size(); ++r) {
    const int layer = begins[r];
    if (layer <= begins[r - 1] || layer >= spec.n_layer()) {
      throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(r) + " cannot begin with layer " +
                                                   std::to_string(layer) + ": give one above " +
                                                   std::to_string(begins[r - 1]) + " and below " +
                                                   std::to_string(spec.n_layer()));
    }
    if (!may_begin(spec, layer)) {
      throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(r) + " cannot begin with layer " +
                                                   std::to_string(layer) +
                                                   ": layers from there on attend to entries of earlier ones");
    }
  }
  std::vector<LayerRange> ranges;
  for (std::size_t r = 0; r < begins.size(); ++r) {
    ranges.push_back({.first = begins[r], .last = r + 1 < begins.size() ? begins[r + 1] : spec.n_layer()});
  }
  return ranges;
}

}  // namespace winnow
