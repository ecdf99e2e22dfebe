// Tables of weights from a file of head importances (HeadImportance).
#pragma once

#include "winnow/head_table.h"
#include "winnow/option.h"

namespace winnow {

// Returns HeadKV's table (arXiv 2410.19258): a fixed part for every head and a pool that is shared by importance. With
// B the average prefix budget, share = B (1 - 1/beta) + pool * importance, pool = B/beta * L * Hkv; importance sums to
// 1 over the model.
const HeadTable& headkv_table();
std::vector<Option> headkv_options();

// Returns DuoAttention's table (arXiv 2410.10819): the most important heads (its retrieval heads) keep all entries, one
// after the other until the total is spent, and the others only the protected ones. Of equal importances the lower
// (layer, head) comes first.
const HeadTable& duo_attention_table();
std::vector<Option> duo_attention_options();

}  // namespace winnow
