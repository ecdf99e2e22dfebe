#include "winnow/instruction_set.h"

#include "kernels/simd/isa.h"

namespace winnow {

void select_instruction_set(const std::string& name) { kernels::force_isa(name); }

std::string instruction_set() { return kernels::current_isa(); }

}  // namespace winnow
