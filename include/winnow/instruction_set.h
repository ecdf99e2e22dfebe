// Which vector instructions the process computes with.
#pragma once

#include <string>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Forces one by its name ("AVX2", "AVX3", ...) for the whole process; an empty name goes back to the best one that
// the machine has. Throws Error(kUnsupported) with the list of those that can be chosen. Call it before any engine
// exists: it is not safe while another thread computes. Without a call, the first engine takes the one that the
// environment's WINNOW_ISA names.
void select_instruction_set(const std::string& name);

// The one in use. Throws Error(kUnsupported) if the environment names one that cannot be used.
std::string instruction_set();

}  // namespace winnow
