// A layer has attention with normalised queries and keys or, if the file gives 0 KV heads, a gated convolution over a
// few rows. The file names the norm before the output as if it were that of the embeddings.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
namespace {

void configure(const Metadata&, ModelSpec& spec) { spec.output_norm_name = "token_embd_norm"; }

}  // namespace

const Architecture kLfm2 = {
    .name = "lfm2",
    .models = "LFM2",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead},
    .recurrence = RecurrenceKind::kShortConvolution,
    .configure = configure,
};

}  // namespace winnow
