// Grammars whose rules can begin with themselves.
#pragma once

#include "model/grammar.h"

namespace winnow {

// Whether a rule can stand first in itself with something behind it: there is no end to what such a rule may begin
// with. Takes time in proportion to the grammar, and no recursion.
bool is_left_recursive(const Grammar& grammar);

}  // namespace winnow
