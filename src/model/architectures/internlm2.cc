// llama's block.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kInternLm2 = {
    .name = "internlm2",
    .models = "InternLM 2 and 2.5",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
};

}  // namespace winnow
