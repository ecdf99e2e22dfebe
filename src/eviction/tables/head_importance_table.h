// Static tables from a file of head importances.
#pragma once

#include "winnow/head_table.h"
#include "winnow/option.h"

namespace winnow {

// HeadKV: a static part for everyone and a pool that goes by importance (arXiv 2410.19258). With B the average prefix
// budget, share = B (1 - 1/beta) + pool * importance, pool = B/beta * L * Hkv; importance sums to 1 over the model.
const HeadTable& headkv_table();
std::vector<Option> headkv_options();

// DuoAttention: the most important heads (its retrieval heads) whole, one after the other until the total is spent, the
// rest only what is protected (arXiv 2410.10819). Equal importances go to the lower (layer, head).
const HeadTable& duo_attention_table();
std::vector<Option> duo_attention_options();

}  // namespace winnow
