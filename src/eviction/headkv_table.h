// HeadKV: a static part for everyone and a pool that goes by importance (arXiv 2410.19258). With B the average prefix
// budget, share = B (1 - 1/beta) + pool * importance, pool = B/beta * L * Hkv; importance sums to 1 over the model.
#pragma once

#include "eviction/head_table.h"

namespace winnow {

const HeadTable& headkv_table();

}  // namespace winnow
