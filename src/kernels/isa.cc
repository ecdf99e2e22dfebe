#include "kernels/isa.h"

#include <cstdint>

#include "kernels/simd_targets.h"
#include "winnow/error.h"

namespace winnow::kernels {
namespace {

// Highway numbers its targets so that a better one has a lower bit.
struct Target {
  std::string name;
  std::int64_t bit;
};

// Read once, before any force_isa: afterwards Highway reports the forced one only.
const std::vector<Target>& machine_targets() {
  static const std::vector<Target> targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    std::vector<Target> found;
    for (const std::int64_t bit : hwy::SupportedAndGeneratedTargets()) found.push_back({hwy::TargetName(bit), bit});
    return found;
  }();
  return targets;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Target& target : machine_targets()) names.push_back(target.name);
  return names;
}

void force_isa(const std::string& name) {
  std::string names;
  std::int64_t mask = name.empty() ? 0 : -1;
  for (const Target& target : machine_targets()) {
    if (target.name == name) mask = target.bit;
    names += names.empty() ? "" : ", ";
    names += target.name;
  }
  if (mask == -1) {
    throw Error(ErrorCode::kUnsupported, "the instruction set '" + name +
                                             "' is not one that this machine and build have: choose one of " + names);
  }
  hwy::SetSupportedTargetsForTest(mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::string current_isa() {
  machine_targets();
  const std::int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(supported & -supported);
}

}  // namespace winnow::kernels
