// Whether this processor, the system and this build multiply bfloat16 by instructions that Highway 1.0 does not use.
#pragma once

namespace winnow::kernels {

struct Bf16Support {
  bool avx512 = false;          // AVX512-BF16
  bool avx512_is_fast = false;  // and its dot product does more than a multiply-add of float32
  bool amx = false;             // AMX tiles, which imply AVX512-BF16 here; this process may use them
};

// Asks the system for the right to use AMX tiles, for this process and every thread that it starts from then on.
Bf16Support detect_bf16_support();

}  // namespace winnow::kernels
