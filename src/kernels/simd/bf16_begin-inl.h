// Includes the vector instructions of x86-64 and lets the functions from here to HWY_POP_ATTRIBUTES use those for
// bfloat16. Included after every other header, so that none of their inline functions is compiled for an instruction
// set that the processor may lack.
#pragma once

#include "kernels/simd/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16,amx-tile,amx-bf16,fma,f16c")
