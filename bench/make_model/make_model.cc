// winnow_make_model: a GGUF file of random weights, of any shape and context. Speed and memory depend on shapes alone,
// so such a model stands for a large one that nobody need download. Its text is noise.
#include <ggml.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "model/tiny_model.h"

namespace {

int weight_type(const std::string& name) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const char* known = ggml_type_name(static_cast<ggml_type>(type));
    if (known != nullptr && name == known) return type;
  }
  throw CLI::ValidationError("--type", "there is no weight type '" + name + "': take f32, bf16, q8_0, q4_0 or q4_1");
}

}  // namespace

int main(int argc, char** argv) {
  winnow::test::TinyModelOptions options{.n_layer = 16,
                                         .n_head = 32,
                                         .n_kv_head = 8,
                                         .head_dim = 64,
                                         .n_embd = 2048,
                                         .n_ff = 8192,
                                         .n_vocab = 32000,
                                         .n_ctx = 131072,
                                         .is_output_tied = true};
  std::string path, type = "q4_1";
  CLI::App app("Writes a GGUF model of random weights. The defaults are shaped as Llama-3.2-1B.", "winnow_make_model");
  app.add_option("file", path, "the file to write")->required();
  app.add_option("--arch", options.architecture, "llama, qwen2, qwen3 or gemma")->capture_default_str();
  app.add_option("--layers", options.n_layer)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--heads", options.n_head, "query heads")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--kv-heads", options.n_kv_head)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--head-dim", options.head_dim)->capture_default_str()->check(CLI::Range(8, 256));
  app.add_option("--embd", options.n_embd, "width")->capture_default_str()->check(CLI::Range(8, 65536));
  app.add_option("--ff", options.n_ff, "width of the feed-forward")
      ->capture_default_str()
      ->check(CLI::Range(8, 262144));
  app.add_option("--vocab", options.n_vocab)->capture_default_str()->check(CLI::Range(300, 1000000));
  app.add_option("--ctx", options.n_ctx, "trained context")->capture_default_str()->check(CLI::Range(1, 1 << 30));
  app.add_option("--type", type, "weight type")->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  try {
    app.parse(argc, argv);
    options.weight_type = weight_type(type);
    if (options.n_head % options.n_kv_head != 0) {
      throw CLI::ValidationError("--kv-heads", "the query heads must be a multiple of the KV heads");
    }
    winnow::test::write_tiny_model(options, path);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
