#include "engine/ranks/check_ranks.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "winnow/error.h"

namespace winnow {

std::vector<LayerRange> layer_ranges(const Model::Impl& model, const EngineOptions& options) {
  const int n_ranks = options.pipeline ? options.pipeline->n_ranks() : 1;
  return split_layers(model.spec, model.file, n_ranks, options.pipeline_layers);
}

int check_ranks(const Pipeline& pipeline, const Model::Impl& model, const EngineOptions& options) {
  if (pipeline.n_ranks() == 1) return options.n_threads;
  std::vector<std::uint64_t> own = {
      model.info.fingerprint, model.info.metadata_fingerprint, static_cast<std::uint64_t>(options.n_batch),
      static_cast<std::uint64_t>(options.prefill_weights), static_cast<std::uint64_t>(options.is_led)};
  for (const LayerRange& range : pipeline.ranges()) own.push_back(static_cast<std::uint64_t>(range.first));
  return pipeline.together([&] {
    const std::span<const std::byte> bytes = std::as_bytes(std::span<const std::uint64_t>(own));
    const std::vector<std::vector<std::byte>> all = pipeline.gather(bytes);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (std::equal(all[rank].begin(), all[rank].end(), bytes.begin(), bytes.end())) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank) + " has a different model or different flags from rank " +
                      std::to_string(pipeline.rank()) + ": start all ranks with the same ones");
    }
    int most = 0;
    for (const std::vector<std::byte>& message : pipeline.gather(std::as_bytes(std::span(&options.n_threads, 1)))) {
      most = std::max(most, numbers_in<int>(message).at(0));
    }
    return most;
  });
}

}  // namespace winnow
