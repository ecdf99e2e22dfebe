#include "kernels/simd/isa.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "kernels/simd/bf16_units.h"
#include "kernels/simd/simd_targets.h"
#include "winnow/error.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace winnow::kernels {
namespace {

// Highway numbers its targets so that a better one has a lower bit.
struct Target {
  std::string name;
  std::int64_t bit;
  Bf16Unit unit;
  Int8Unit int8;
};

#if HWY_ARCH_X86
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1U) != 0;
}

// Returns the unit of one of Highway's targets.
Int8Unit int8_unit(std::int64_t bit) {
  if (bit <= HWY_AVX3 && __builtin_cpu_supports("avx512vnni") != 0) return Int8Unit::kAvx512Vnni;
  return bit <= HWY_AVX2 ? Int8Unit::kAvx2 : Int8Unit::kNone;
}
#else
Int8Unit int8_unit(std::int64_t) { return Int8Unit::kNone; }
#endif

#if HWY_ARCH_ARM_A64 && defined(__linux__)
bool has_neon_dot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_neon_i8mm() { return has_neon_dot() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#endif

std::vector<Target> find_targets() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<Target> found;
  for (const std::int64_t bit : hwy::SupportedAndGeneratedTargets()) {
    found.push_back({hwy::TargetName(bit), bit, Bf16Unit::kNone, int8_unit(bit)});
  }
#if HWY_ARCH_X86
  // AVX-VNNI has AVX512-VNNI's dot products on 256 bits, for processors without AVX-512.
  const auto avx2 = std::find_if(found.begin(), found.end(), [](const Target& t) { return t.bit == HWY_AVX2; });
  if (avx2 != found.end() && has_avx_vnni()) {
    found.insert(avx2, {"AVX2_VNNI", HWY_AVX2, Bf16Unit::kNone, Int8Unit::kAvxVnni});
  }
  if (found.front().bit > HWY_AVX3) return found;
  const std::int64_t best = found.front().bit;
  const Bf16Support support = detect_bf16_support();
  // If products of bfloat16 are no faster than those of float32, AVX3_BF16 is listed after AVX3: only tests use it.
  if (support.avx512) {
    const auto at = found.begin() + (support.avx512_is_fast ? 0 : 1);
    found.insert(at, {"AVX3_BF16", best, Bf16Unit::kAvx512, int8_unit(best)});
  }
  if (support.amx) found.insert(found.begin(), {"AMX_BF16", best, Bf16Unit::kAmx, int8_unit(best)});
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
  const std::int64_t best = found.front().bit;
  if (has_neon_dot()) found.insert(found.begin(), {"NEON_DOT", best, Bf16Unit::kNone, Int8Unit::kNeonDot});
  if (has_neon_i8mm()) found.insert(found.begin(), {"NEON_I8MM", best, Bf16Unit::kNone, Int8Unit::kNeonI8mm});
#endif
  return found;
}

// Returns the machine's targets. They are read once, before any force_isa: afterwards Highway only reports the forced
// one.
const std::vector<Target>& machine_targets() {
  static const std::vector<Target> targets = find_targets();
  return targets;
}

std::atomic<const Target*> forced_target = nullptr;
std::atomic<bool> has_chosen = false;  // by force_isa: the environment is not read any more

const Target& current_target() {
  use_environment_isa();
  const Target* forced = forced_target.load(std::memory_order_relaxed);
  return forced != nullptr ? *forced : machine_targets().front();
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Target& target : machine_targets()) names.push_back(target.name);
  return names;
}

void force_isa(const std::string& name) {
  std::string names;
  const Target* chosen = nullptr;
  for (const Target& target : machine_targets()) {
    if (target.name == name) chosen = &target;
    names += names.empty() ? "" : ", ";
    names += target.name;
  }
  if (chosen == nullptr && !name.empty()) {
    throw Error(ErrorCode::kUnsupported, "the instruction set '" + name +
                                             "' is not one that this machine and build have: choose one of " + names);
  }
  has_chosen = true;
  forced_target = chosen;
  hwy::SetSupportedTargetsForTest(chosen != nullptr ? chosen->bit : 0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void use_environment_isa() {
  // An unusable name is refused at every call, since an initialisation that throws is repeated.
  static const bool is_done = [] {
    const char* name = std::getenv("WINNOW_ISA");
    if (!has_chosen && name != nullptr && *name != '\0') force_isa(name);
    return true;
  }();
  static_cast<void>(is_done);
}

std::string current_isa() { return current_target().name; }

Bf16Unit current_bf16_unit() { return current_target().unit; }

Int8Unit current_int8_unit() { return current_target().int8; }

}  // namespace winnow::kernels
