// Which instruction set the kernels run on.
#pragma once

#include <string>
#include <vector>

namespace winnow::kernels {

// Names of the instruction sets that this machine can run and this build contains, best first ("AMX_BF16", "AVX3",
// "AVX2", ...).
std::vector<std::string> supported_isas();

// Forces one for the whole process; throws Error(kUnsupported) with the list if this machine cannot run it. Meant for
// the start of a program and for tests. An empty name goes back to the best one.
void force_isa(const std::string& name);

// Forces the one that the environment's WINNOW_ISA names, at the first call and unless force_isa was called before.
// Throws Error(kUnsupported) as force_isa does. Whoever dispatches the first kernel calls it before.
void use_environment_isa();

std::string current_isa();

// Instructions that multiply bfloat16, beyond what Highway 1.0 uses; part of the current instruction set.
enum class Bf16Unit { kNone, kAvx512, kAmx };

Bf16Unit current_bf16_unit();

// Instructions for dot products of 8-bit integers that belong to the current instruction set.
enum class Int8Unit { kNone, kAvx2, kAvxVnni, kAvx512Vnni, kNeonDot, kNeonI8mm };

Int8Unit current_int8_unit();

}  // namespace winnow::kernels
