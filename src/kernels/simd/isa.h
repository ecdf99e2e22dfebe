// Selects the instruction set that the kernels run on.
#pragma once

#include <string>
#include <vector>

namespace winnow::kernels {

// Returns the names of the instruction sets that this machine can run and this build contains, best first ("AMX_BF16",
// "AVX3", "AVX2", ...).
std::vector<std::string> supported_isas();

// Forces an instruction set for the whole process; an empty name restores the best one. Throws Error(kUnsupported) with
// the list of names if this machine cannot run it. Meant for the start of a program and for tests.
void force_isa(const std::string& name);

// Forces the instruction set that the environment variable WINNOW_ISA names, at the first call and unless force_isa was
// called before. Throws Error(kUnsupported) like force_isa. Must be called before the first kernel is dispatched.
void use_environment_isa();

std::string current_isa();

// The instructions of the current instruction set that multiply bfloat16, beyond what Highway 1.0 uses.
enum class Bf16Unit { kNone, kAvx512, kAmx };

Bf16Unit current_bf16_unit();

// The instructions of the current instruction set for dot products of 8-bit integers.
enum class Int8Unit { kNone, kAvx2, kAvxVnni, kAvx512Vnni, kNeonDot, kNeonI8mm };

Int8Unit current_int8_unit();

}  // namespace winnow::kernels
