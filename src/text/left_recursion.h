// Grammars whose rules can begin with themselves.
#pragma once

#include <vector>

#include "text/grammar.h"

namespace winnow {

// [n_rules]: which of them the empty text matches. What it knows of repetitions already (Grammar::Repeat::is_empty) is
// not looked at.
std::vector<bool> find_empty_rules(const Grammar& grammar);

// Whether a rule can stand first in itself with something behind it: there is no end to what such a rule may begin
// with. Takes time in proportion to the grammar, and no recursion.
bool is_left_recursive(const Grammar& grammar);

}  // namespace winnow
