// The architectures, one file each.
#pragma once

#include "model/architecture.h"

namespace winnow {

extern const Architecture kLlama;
extern const Architecture kMistral3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGemma;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kGemma4;
extern const Architecture kPhi3;
extern const Architecture kSmolLm3;
extern const Architecture kGranite;
extern const Architecture kMiniCpm;
extern const Architecture kOlmo2;
extern const Architecture kCohere2;
extern const Architecture kStarCoder2;
extern const Architecture kStableLm;
extern const Architecture kGlm4;
extern const Architecture kInternLm2;
extern const Architecture kErnie45;
extern const Architecture kSeedOss;
extern const Architecture kHunyuanDense;
extern const Architecture kExaone4;
extern const Architecture kLfm2;
extern const Architecture kGraniteHybrid;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kQwen2Moe;
extern const Architecture kQwen3Moe;
extern const Architecture kOlmoe;
extern const Architecture kGraniteMoe;
extern const Architecture kGptOss;
extern const Architecture kDeepSeek2;

// Reads Granite's multipliers of embeddings, attention, residuals and logits, if the file has them.
void read_multipliers(const Metadata& metadata, ModelSpec& spec);

// Sets the attention scale of Gemma's 27B, which is recognised by its number of layers: it is that of the head size
// which n_embd would give.
void scale_queries_of_27b(int n_layer_of_27b, ModelSpec& spec);

}  // namespace winnow
