// llama's block with Q, K and V in one tensor, gate and up in another, and two sets of RoPE factors: for the original
// context and for longer ones. The files state sliding windows that the models were not converted for; as in llama.cpp,
// they are not read.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kPhi3 = {
    .name = "phi3",
    .models = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.feed_forward = {.is_gate_in_up = true}},
    .sliding = {.is_ignored = true},
};

}  // namespace winnow
