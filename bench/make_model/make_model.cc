// winnow_make_model writes a GGUF file of random weights, of any shape and context. Speed and memory depend on shapes
// alone, so such a model stands for a large one that need not be downloaded. Its text is noise.
#include <ggml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "model/architecture.h"
#include "model/tiny_architectures.h"
#include "model/tiny_model.h"

namespace {

int weight_type(const std::string& name) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const char* known = ggml_type_name(static_cast<ggml_type>(type));
    if (known != nullptr && name == known) return type;
  }
  throw CLI::ValidationError("--type", "there is no weight type '" + name + "': take f32, bf16, q8_0, q4_0 or q4_1");
}

// Lets the last layers, at most half of them, attend to the entries that the two layers before them store. Of these
// two, the first has a sliding window and the second has none.
void share_layers(winnow::test::TinyModelOptions& options) {
  for (auto first = static_cast<std::size_t>(std::max(2, options.n_layer / 2)); first < options.layers.size();
       ++first) {
    if (!options.layers[first - 2].slides || options.layers[first - 1].slides) continue;
    options.n_shared_layers = options.n_layer - static_cast<int>(first);
    return;
  }
}

// Sets the options of the architecture besides the dimensions, with the constants of the tests' model.
void take_architecture(const std::string& name, winnow::test::TinyModelOptions& options) {
  if (std::none_of(winnow::architectures().begin(), winnow::architectures().end(),
                   [&](const winnow::Architecture* architecture) { return architecture->name == name; })) {
    throw CLI::ValidationError("--arch", "there is no architecture '" + name + "'");
  }
  const winnow::test::TinyModelOptions tiny = winnow::test::tiny_options(name);
  options.architecture = name;
  options.constants = tiny.constants;
  options.rope_scaling = tiny.rope_scaling;
  options.rope_original_context = options.n_ctx;
  // Layers of several kinds come in the same order as in the tests' model.
  const bool has_sliding_sizes = winnow::test::tiny_architecture(name).has_sliding_sizes;
  for (int l = 0; l < options.n_layer && !tiny.layers.empty(); ++l) {
    const winnow::test::TinyLayer& kind = tiny.layers[static_cast<std::size_t>(l) % tiny.layers.size()];
    const int head_dim = has_sliding_sizes && !kind.slides ? 2 * options.head_dim : options.head_dim;  // as in Gemma 4
    options.layers.push_back({.n_head = options.n_head,
                              .n_kv_head = kind.n_kv_head > 0 ? options.n_kv_head : 0,
                              .key_dim = head_dim,
                              .value_dim = head_dim,
                              .n_ff = options.n_ff,
                              .slides = kind.slides,
                              .is_key_value = kind.is_key_value});
  }
  options.has_rope_freqs = has_sliding_sizes;
  if (tiny.per_layer_embedding_dim > 0) options.per_layer_embedding_dim = 256;
  if (tiny.n_shared_layers > 0) share_layers(options);
  if (tiny.latent_rank > 0) {  // as in DeepSeek-V2-Lite
    options.latent_rank = 512;
    options.expert_gating = tiny.expert_gating;
    options.n_dense_lead = tiny.n_dense_lead;
    options.query_rank = 768;
    if (options.expert_n_ff == 0) options.expert_n_ff = options.n_ff;
  }
  if (tiny.sliding_window > 0 && options.sliding_window == 0) options.sliding_window = 1024;
  const bool has_experts = winnow::test::tiny_architecture(name).has_experts;
  const bool may_have_experts = has_experts || name == "llama" || name == "mistral3" || name == "granite";
  if (options.n_expert > 0 && !may_have_experts) {
    throw CLI::ValidationError("--experts", "models of " + name + " have no experts");
  }
  if (has_experts && options.n_expert == 0) options.n_expert = 64;
  if (options.n_expert_used == 0) options.n_expert_used = std::min(8, options.n_expert);
  if (options.n_expert_used > options.n_expert) {
    throw CLI::ValidationError("--experts-used", "there are only " + std::to_string(options.n_expert) + " experts");
  }
  if (tiny.shared_n_ff > 0 && options.shared_n_ff == 0) options.shared_n_ff = options.n_ff;
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
  std::string path, architecture = "llama", type = "q4_1", expert_type;
  CLI::App app("Writes a GGUF model of random weights. The defaults are shaped as Llama-3.2-1B.", "winnow_make_model");
  app.add_option("file", path, "the file to write")->required();
  std::string names;
  for (const winnow::Architecture* known : winnow::architectures()) {
    names += (names.empty() ? "" : ", ") + std::string(known->name);
  }
  app.add_option("--arch", architecture, names)->capture_default_str();
  app.add_option("--layers", options.n_layer)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--heads", options.n_head, "query heads")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--kv-heads", options.n_kv_head)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--head-dim", options.head_dim)->capture_default_str()->check(CLI::Range(8, 512));
  app.add_option("--embd", options.n_embd, "width")->capture_default_str()->check(CLI::Range(8, 65536));
  app.add_option("--ff", options.n_ff, "width of the feed-forward")
      ->capture_default_str()
      ->check(CLI::Range(8, 262144));
  app.add_option("--experts", options.n_expert, "0: dense, or for architectures of experts only, 64")
      ->check(CLI::Range(0, 4096));
  app.add_option("--expert-ff", options.expert_n_ff, "width of an expert; by default --ff")
      ->check(CLI::Range(8, 262144));
  app.add_option("--experts-used", options.n_expert_used, "of a token; by default 8, or all")
      ->check(CLI::Range(1, 4096));
  app.add_option("--shared-ff", options.shared_n_ff, "width of an expert that every token takes")
      ->check(CLI::Range(0, 262144));
  app.add_option("--window", options.sliding_window,
                 "tokens that a sliding layer sees; which layers slide is the architecture's")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--vocab", options.n_vocab)->capture_default_str()->check(CLI::Range(300, 1000000));
  app.add_option("--ctx", options.n_ctx, "trained context")->capture_default_str()->check(CLI::Range(1, 1 << 30));
  app.add_option("--type", type, "weight type")->capture_default_str();
  app.add_option("--expert-type", expert_type, "weight type of the experts; by default that of the others");
  app.add_option("--drawn-rows", options.n_drawn_rows,
                 "rows of a matrix that are drawn; the others repeat them, so that a large model takes seconds; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  try {
    app.parse(argc, argv);
    options.weight_type = weight_type(type);
    if (!expert_type.empty()) options.expert_weight_type = weight_type(expert_type);
    take_architecture(architecture, options);
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
