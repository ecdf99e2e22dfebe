// Model files. An input's first byte says whether the rest is a file as it is (odd), or edits of a small complete model
// (even), so that the code after the reader of the format is fuzzed too. From 128 on the model first gets heads of
// another shape, and the input chooses how it is used. A model that loads tokenises a text; its prompt is prefilled,
// the session forked, tokens are decoded, the session is saved and loaded, and more tokens are appended.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/gguf_parts.h"
#include "fuzz/memory_file.h"
#include "model/tiny_architectures.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace {

using namespace winnow;        // NOLINT(google-build-using-namespace)
using namespace winnow::test;  // NOLINT(google-build-using-namespace)

std::vector<GgufParts> complete_models() {
  constexpr int kQ80 = 8;  // GGML_TYPE_Q8_0
  const TinyModelOptions small{
      .n_layer = 1, .n_head = 2, .n_kv_head = 1, .head_dim = 16, .n_embd = 8, .n_ff = 8, .n_vocab = 262};
  std::vector<TinyModelOptions> all(2, small);
  all[0].weight_type = kQ80;
  all[0].n_embd = all[0].n_ff = 32;  // a block of q8_0
  all[0].has_rope_freqs = true;
  all[1].has_tokenizer = false;
  all[1].rope_scaling = "yarn";
  for (const TinyArchitecture& architecture : tiny_architectures()) {
    if (architecture.name == "deci") continue;
    TinyModelOptions options = tiny_options(architecture.name);
    options.n_layer = 1, options.n_head = 2, options.n_kv_head = 1, options.head_dim = 16;
    options.n_embd = 32, options.n_ff = 8, options.n_vocab = 262;
    if (architecture.has_delta_net) options.n_layer = 4;  // the last layer has attention
    if (!options.layers.empty()) options.layers.resize(3);
    options.expert_n_ff = std::min(options.expert_n_ff, 4);
    options.shared_n_ff = std::min(options.shared_n_ff, 8);
    if (architecture.name == "olmoe") options.n_kv_head = 2;
    all.push_back(options);
  }
  std::vector<GgufParts> parts;
  for (const TinyModelOptions& options : all) parts.push_back(take_apart(read_bytes(TinyModel(options).path())));
  return parts;
}

// The bytes of the input, followed by zeros.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  template <class T, std::size_t n>
  const T& of(const std::array<T, n>& choices) {
    return choices[next() % n];
  }
  const std::uint8_t* data() const { return data_; }
  std::size_t left() const { return left_; }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// Chooses a shape around the limits of loaders and kernels: 128 query heads for a KV head, heads of up to 256 in steps
// of 16, tiles of 4, 6 and 8 rows, strips of 16 and 32.
HeadShape choose_shape(Bytes& bytes) {
  static constexpr std::array<std::uint32_t, 32> kGroups = {1,  2,  3,  4,  5,   6,   7,   8,   9,   12, 15,
                                                            16, 17, 20, 24, 25,  31,  32,  33,  40,  48, 63,
                                                            64, 65, 71, 96, 100, 127, 128, 129, 160, 256};
  static constexpr std::array<std::uint32_t, 6> kKvHeads = {1, 1, 1, 2, 3, 5};
  static constexpr std::array<std::uint32_t, 24> kDims = {8,   16,  24,  32,  40,  48,  64,  72,  80,  96,  112, 128,
                                                          144, 160, 176, 192, 208, 224, 240, 256, 264, 272, 288, 512};
  const std::uint32_t n_kv_head = bytes.of(kKvHeads), n_group = bytes.of(kGroups), head_dim = bytes.of(kDims);
  const std::uint32_t n_kept = n_group * head_dim > 4096 ? 1 : n_kv_head;  // large groups are slow enough
  return {.n_head = n_group * n_kept, .n_kv_head = n_kept, .head_dim = head_dim};
}

struct Use {
  SessionOptions session;
  std::size_t n_prompt = 4;
  int n_decoded = 2;
  bool is_saved = false;
};

Use choose_use(Bytes& bytes) {
  static const std::array<const char*, 12> kMethods = {"full",
                                                       "streaming-llm:window=2",
                                                       "h2o:window=2",
                                                       "tova",
                                                       "snapkv:window=3",
                                                       "expected-attention:ea-future=9",
                                                       "keydiff",
                                                       "critical-snapkv:window=2",
                                                       "cake:window=4",
                                                       "lava:window=2",
                                                       "vatp:window=2",
                                                       "kvzip:window=2"};
  Use use;
  use.session.key_type = static_cast<EntryType>(bytes.next() % entry_types().size());
  use.session.value_type = static_cast<EntryType>(bytes.next() % entry_types().size());
  use.session.eviction = EvictionOptions::parse(bytes.of(kMethods));
  if (use.session.eviction.evicts()) use.session.budget = Budget::parse(bytes.next() % 2 == 0 ? "6" : "40%");
  use.session.decode_cut = static_cast<SessionOptions::DecodeCut>(bytes.next() % 3);
  use.session.prefill_chunk = bytes.next() % 4 == 0 ? 7 : 0;
  use.n_prompt = 1 + bytes.next() % 40;  // a batch has 32 tokens
  use.n_decoded = bytes.next() % 4;
  use.is_saved = bytes.next() % 4 == 0;
  if (!use.session.eviction.evicts()) {
    use.session.decode_cut = SessionOptions::DecodeCut::kKeep;
    use.session.prefill_chunk = 0;
  }
  return use;
}

// Traps unless a saved and loaded session goes on as the session itself.
void save_and_load(Engine& engine, Session& session, Token next) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz-session-" + std::to_string(getpid()))).string();
  session.save(path);
  Session loaded = engine.load_session(path);
  session.decode(next);
  loaded.decode(next);
  const std::span<const float> here = session.logits(), there = loaded.logits();
  if (here.size() != there.size() || std::memcmp(here.data(), there.data(), here.size_bytes()) != 0) __builtin_trap();
}

void run(const std::shared_ptr<const Model>& model, const Use& use) {
  std::vector<Token> tokens = {0};
  try {
    tokens = model->tokenize("Hello, \xc3\xa9 world", true, true);
    model->detokenize(tokens);
    const ChatMessage message{"user", "hello"};
    if (model->has_chat_template()) model->apply_chat_template(std::span(&message, 1), true);
  } catch (const Error&) {
  }
  for (Token& token : tokens) token = std::min(token, model->info().n_vocab - 1);
  if (tokens.empty()) tokens = {0};
  for (std::size_t i = 0; tokens.size() < use.n_prompt; ++i) tokens.push_back(tokens[i]);
  tokens.resize(use.n_prompt);
  const auto engine = Engine::create(model, {.n_threads = 1, .kv_bytes_limit = 1 << 24, .n_batch = 32});
  Session session = engine->open(use.session);
  session.prefill(tokens);
  Session fork = session.fork();
  for (int i = 0; i < use.n_decoded; ++i) {
    Session* both[] = {&session, &fork};
    const std::array<Token, 2> next = {tokens[0], tokens.back()};
    engine->decode(both, next);
  }
  if (use.is_saved) save_and_load(*engine, session, tokens[0]);
  session.append(tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<GgufParts> complete = complete_models();
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  Use use;
  bool is_used = data[size - 1] % 4 == 0;  // using a model takes longer than all the rest
  if (data[0] % 2 == 0) {
    GgufParts parts = complete[data[0] / 2 % complete.size()];
    Bytes bytes(data + 1, size - 1);
    if (data[0] >= 128) {
      reshape(parts, choose_shape(bytes));
      use = choose_use(bytes);
      is_used = true;
    }
    edit(parts, bytes.data(), bytes.left());
    file = put_together(parts);
  }
  const MemoryFile memory(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  try {
    const auto model = Model::load(memory.path());
    if (is_used) run(model, use);
  } catch (const Error&) {
  }
  return 0;
}
