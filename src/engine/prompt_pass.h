// Sends the rows of one prompt or turn through the model, layer by layer: layer l's weights are converted once, then
// all rows pass through it in chunks before layer l + 1 begins.
#pragma once

#include <functional>
#include <span>

#include "cache/mapped_memory.h"
#include "cache/staging_buffer.h"
#include "engine/engine_impl.h"
#include "engine/rows_attention.h"

namespace winnow {

class PromptPass {
 public:
  // With a staging buffer the layer's keys and values go there, and on_layer moves what stays to the session's cache.
  // Without one they go to the session's cache, which has been extended by the rows in every head.
  PromptPass(Session::Impl& session, std::span<const Token> tokens, StagingBuffer* staging);

  // on_layer(l) is called after layer l's last chunk; may be null. Throws Error(kCancelled) when on_progress says so.
  void run(const ProgressCallback& on_progress, const std::function<void(int)>& on_layer);

  // Afterwards: the last row's logits into the session, and every row's to the callback, if there is one.
  void read_logits(const LogitsCallback& on_logits);

  std::size_t hidden_bytes() const { return hidden_.bytes(); }
  const kernels::AttentionShape& kernel_shape() const { return attention_.kernel_shape(); }

 private:
  void run_chunk(const LayerWeights& weights, std::int32_t first_row, std::int32_t n_rows, bool packed);
  float* row(std::int32_t r);

  Session::Impl& session_;
  Engine::Impl& engine_;
  std::span<const Token> tokens_;
  StagingBuffer* staging_;
  std::int32_t first_position_;
  MappedMemory hidden_;  // [n_tokens][n_embd] float32: the residual stream, updated in place
  RowsAttention attention_;
};

}  // namespace winnow
