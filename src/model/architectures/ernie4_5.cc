// llama's block.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kErnie45 = {
    .name = "ernie4_5",
    .models = "ERNIE 4.5 0.3B",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
};

}  // namespace winnow
