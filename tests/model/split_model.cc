#include "model/split_model.h"

#include <ggml-cpp.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace winnow::test {

std::vector<std::string> write_parts(const std::string& path, const std::string& stem, const SplitOptions& options) {
  ggml_context* context = nullptr;
  const gguf_context_ptr whole(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &context}));
  const ggml_context_ptr tensors(context);
  if (!whole) throw std::runtime_error("cannot read " + path);
  const std::int64_t n_tensors = gguf_get_n_tensors(whole.get());
  const int n_with_tensors = options.n_parts - (options.has_tensors_in_first ? 0 : 1);
  const std::int64_t per_part = (n_tensors + n_with_tensors - 1) / n_with_tensors;

  std::vector<std::string> paths;
  std::int64_t next = 0;
  for (int no = 0; no < options.n_parts; ++no) {
    const gguf_context_ptr part(gguf_init_empty());
    if (no == 0) gguf_set_kv(part.get(), whole.get());
    gguf_set_val_u16(part.get(), "split.no", static_cast<std::uint16_t>(no));
    gguf_set_val_u16(part.get(), "split.count", static_cast<std::uint16_t>(options.n_parts));
    gguf_set_val_i32(part.get(), "split.tensors.count", static_cast<std::int32_t>(n_tensors));
    const std::int64_t end = no == 0 && !options.has_tensors_in_first ? 0 : std::min(next + per_part, n_tensors);
    for (; next < end; ++next) {
      gguf_add_tensor(part.get(), ggml_get_tensor(context, gguf_get_tensor_name(whole.get(), next)));
    }
    if (options.edit) options.edit(no, part.get());
    char ending[32];
    std::snprintf(ending, sizeof(ending), "-%05d-of-%05d.gguf", no + 1, options.n_parts);
    paths.push_back(stem + ending);
    if (!gguf_write_to_file(part.get(), paths.back().c_str(), false)) {
      throw std::runtime_error("cannot write " + paths.back());
    }
  }
  return paths;
}

}  // namespace winnow::test
