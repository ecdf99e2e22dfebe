#include "model/byte_pair_model.h"

#include <llama.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>

#include "base/utf8.h"
#include "text/word_patterns.h"

namespace winnow::test {
namespace {

constexpr const char* kKinds[] = {"default",
                                  "minicpm5",
                                  "llama3",
                                  "llama-v3",
                                  "llama-bpe",
                                  "falcon3",
                                  "falcon-h1",
                                  "pixtral",
                                  "midm-2.0",
                                  "lfm2",
                                  "jina-v5-nano",
                                  "deepseek-llm",
                                  "deepseek-coder",
                                  "deepseek-v3",
                                  "spark2_5",
                                  "youtu",
                                  "falcon",
                                  "mpt",
                                  "starcoder",
                                  "gpt-2",
                                  "phi-2",
                                  "jina-es",
                                  "jina-de",
                                  "gigachat",
                                  "jina-v2-es",
                                  "jina-v2-de",
                                  "a.x-4.0",
                                  "mellum",
                                  "modern-bert",
                                  "jais-2",
                                  "gemma4",
                                  "granite-embed-multi-311m",
                                  "sarvam-moe",
                                  "jina-v1-en",
                                  "jina-v2-code",
                                  "roberta-bpe",
                                  "refact",
                                  "command-r",
                                  "qwen2",
                                  "deepseek-r1-qwen",
                                  "kormo",
                                  "f2llmv2",
                                  "qwen35",
                                  "stablelm2",
                                  "olmo",
                                  "dbrx",
                                  "smaug-bpe",
                                  "poro-chat",
                                  "chatglm-bpe",
                                  "glm4",
                                  "glm5",
                                  "viking",
                                  "jais",
                                  "tekken",
                                  "smollm",
                                  "codeshell",
                                  "bloom",
                                  "gpt3-finnish",
                                  "exaone",
                                  "exaone4",
                                  "exaone-moe",
                                  "chameleon",
                                  "minerva-7b",
                                  "megrez",
                                  "gpt-4o",
                                  "llama4",
                                  "kanana2",
                                  "talkie",
                                  "granite-embed-multi-97m",
                                  "tiny_aya",
                                  "cohere2moe",
                                  "superbpe",
                                  "trillion",
                                  "granite-docling",
                                  "bailingmoe",
                                  "bailingmoe2",
                                  "llada-moe",
                                  "seed-coder",
                                  "hunyuan",
                                  "hunyuan-dense",
                                  "hy_v4",
                                  "joyai-llm",
                                  "kimi-k2",
                                  "ufakzeka",
                                  "grok-2",
                                  "afmoe",
                                  "laguna",
                                  "minimax-m2",
                                  "solar-open",
                                  "mellum2"};

// Returns the text that tokens of byte pairs have for a byte.
std::string byte_name(unsigned char byte) {
  const auto stands_for_itself = [](int c) { return (c > 32 && c < 127) || (c > 160 && c != 173); };
  unsigned letter = byte;
  if (!stands_for_itself(byte)) {
    letter = 256;
    for (int c = 0; c < byte; ++c) letter += stands_for_itself(c) ? 0 : 1;
  }
  return utf8_of(letter);
}

std::string names_of(const std::string& text) {
  std::string names;
  for (const char c : text) names += byte_name(static_cast<unsigned char>(c));
  return names;
}

void on_large_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, std::size_t{1} << 30) != 0) std::abort();
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, run, &body) != 0) std::abort();
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

std::span<const char* const> kinds_of_words() { return kKinds; }

const std::vector<const char*>& kinds_with_rules() {
  static const std::vector<const char*> kinds = [] {
    std::vector<const char*> found;
    std::copy_if(std::begin(kKinds), std::end(kKinds), std::back_inserter(found),
                 [](const char* kind) { return !word_rules(kind).empty(); });
    return found;
  }();
  return kinds;
}

void set_byte_pairs(gguf_context* file, const char* kind, std::size_t run_bytes,
                    std::span<const char* const> specials) {
  constexpr std::int32_t kNormal = 1, kUserDefined = 4;
  std::vector<std::string> tokens, merges;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_name(static_cast<unsigned char>(byte)));
  const std::function<void(const std::string&)> add = [&](const std::string& text) {
    if (text.size() < 2 || std::find(tokens.begin(), tokens.end(), names_of(text)) != tokens.end()) return;
    const std::size_t half = (text.size() + 1) / 2;
    add(text.substr(0, half));
    add(text.substr(half));
    merges.push_back(names_of(text.substr(0, half)) + " " + names_of(text.substr(half)));
    tokens.push_back(names_of(text));
  };
  for (const char* text : {"th",           "the",    " t",      " the",    "ab",  "abab",    "aB",     "12",
                           "123",          "000",    "  ",      "\n ",     " \n", "\n\n",    "\u65e5", "\u672c",
                           "\u65e5\u672c", "\u00e9", "\u00e9A", "A\u00e9", ".\n", "e\u0301", "y/"}) {
    add(text);
  }
  for (const char* text : {".", " ", "a", "A", "\u65e5", "\n", "=", "\u00e9"}) {
    std::string run = text;
    while (run.size() < run_bytes) add(run += run);
  }
  std::vector<const char*> all, pairs;
  for (const std::string& token : tokens) all.push_back(token.c_str());
  for (const std::string& merge : merges) pairs.push_back(merge.c_str());
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  for (const char* special : specials) {
    all.push_back(special);
    types.push_back(kUserDefined);
  }
  gguf_set_val_str(file, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(file, "tokenizer.ggml.pre", kind);
  gguf_set_arr_str(file, "tokenizer.ggml.tokens", all.data(), all.size());
  gguf_set_arr_str(file, "tokenizer.ggml.merges", pairs.data(), pairs.size());
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_remove_key(file, "tokenizer.ggml.scores");
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", false);
}

std::vector<Token> whole_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<Token> tokens(text.size() + 8);
  on_large_stack([&] {
    const int n = llama_tokenize(tokenizer.vocab(), text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                                 static_cast<std::int32_t>(tokens.size()), false, false);
    tokens.resize(static_cast<std::size_t>(std::max(n, 0)));
  });
  return tokens;
}

}  // namespace winnow::test
