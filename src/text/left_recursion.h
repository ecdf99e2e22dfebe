// The search for left recursion: rules that can begin with themselves.
#pragma once

#include <vector>

#include "text/grammar.h"

namespace winnow {

// Returns for each rule if the empty text matches it: [n_rules]. Grammar::Repeat::is_empty is not read.
std::vector<bool> find_empty_rules(const Grammar& grammar);

// Returns true if a rule can begin with itself followed by something, so that its expansion has no end. Takes time in
// proportion to the grammar, and no recursion.
bool is_left_recursive(const Grammar& grammar);

}  // namespace winnow
