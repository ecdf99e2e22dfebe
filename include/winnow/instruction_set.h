// The choice of the vector instructions with which the process computes.
#pragma once

#include <string>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Sets the instruction set of the whole process by its name ("AVX2", "AVX3", ...); an empty name goes back to the best
// one that the machine has. Throws Error(kUnsupported) with the list of those that can be chosen. It has to be called
// before any engine exists: it is not safe while another thread computes. Without a call, the first engine takes the
// instruction set that the environment's WINNOW_ISA names.
void select_instruction_set(const std::string& name);

// Returns the name of the instruction set in use. Throws Error(kUnsupported) if the environment names one that cannot
// be used.
std::string instruction_set();

}  // namespace winnow
