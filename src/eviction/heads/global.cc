// global: the counterpart of the layer allocator of the same name, which ranks the heads of the whole model together.
// It has no shares of its own.
#include "eviction/options/registry.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class GlobalHeads final : public HeadAllocator {
 public:
  bool is_global() const override { return true; }

  std::vector<double> shares(const HeadRequest&, const EvictionOptions&) const override {
    throw Error(ErrorCode::kInternal, "heads=global has no shares of a layer's budget");
  }
};

}  // namespace

const HeadAllocator& global_heads() {
  static const GlobalHeads instance;
  return instance;
}

}  // namespace winnow
