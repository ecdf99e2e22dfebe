// Tests of every architecture and variant against libllama's logits, and of everything that a session does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "engine/architecture_run.h"
#include "engine/engine_test_support.h"
#include "model/architecture.h"
#include "sanitizers.h"

namespace winnow::test {

void PrintTo(const ArchitectureVariant& variant, std::ostream* out) { *out << variant.name; }

namespace {

class ArchitectureTest : public testing::TestWithParam<ArchitectureVariant> {
 protected:
  // Makes each variant's model once for all tests.
  std::shared_ptr<Engine> engine() const {
    static std::map<std::string, std::shared_ptr<const Model>> models;
    std::shared_ptr<const Model>& model = models[GetParam().name];
    if (model == nullptr) model = tiny_model(GetParam().options);
    return Engine::create(model, {.n_threads = 2, .n_batch = 48});
  }
  std::vector<Token> tokens(int n, std::uint32_t seed) const {
    return random_tokens(n, GetParam().options.n_vocab, seed);
  }
};

class ArchitectureFileTest : public ArchitectureTest {};

TEST_P(ArchitectureTest, EqualsLibllama) {
  const ArchitectureResult result = compare_with_libllama(GetParam());
  EXPECT_GT(result.range, 1);  // otherwise the comparison means little
  EXPECT_LT(result.prefill, 1e-3);
  EXPECT_LT(result.decode, 1e-3);
}

// Returns true if libllama has these logits after the last token.
bool libllama_has(const std::string& path, std::span<const Token> tokens, std::span<const float> logits) {
  try {
    return max_difference(LibllamaOracle(path).logits(tokens, tokens.size() - 1).front(), logits) == 0;
  } catch (const std::runtime_error&) {
    return false;
  }
}

// llama.cpp's saver writes every key, with 0 or another number for what a model does not have.
TEST_P(ArchitectureTest, RunsTheFileThatLibllamaSaves) {
  const TinyModel file(GetParam().options);
  const std::vector<Token> prompt = tokens(100, 6);
  const TemporaryDirectory directory;
  const std::string saved = directory.file("saved.gguf");
  const LibllamaOracle oracle(file.path());
  oracle.save(saved);
  if (!libllama_has(saved, prompt, oracle.logits(prompt, prompt.size() - 1).front())) {
    const std::string& architecture = GetParam().options.architecture;
    ASSERT_TRUE(architecture == "gemma4" || architecture == "deepseek2");
    GTEST_SKIP() << "libllama does not save all of this model";
  }
  const auto logits = [&](const std::shared_ptr<Engine>& engine) {
    Session session = engine->open(full_options());
    session.prefill(prompt);
    return logits_of(session);
  };
  const auto of_saved = Engine::create(Model::load(saved), {.n_threads = 2, .n_batch = 48});
  EXPECT_LT(max_difference(logits(of_saved), logits(engine())), 1e-3);
}

TEST_P(ArchitectureTest, EveryPresetKeepsItsBudget) {
  const auto engine = this->engine();
  const ModelInfo& info = engine->model()->info();
  const std::vector<Token> prompt = tokens(70, 4), later = tokens(3, 5);
  std::size_t turn = GetParam().name.size();
  for (const std::string& method : session_methods()) {
    if (kHasSanitizers && ++turn % 3 != 0) continue;  // each architecture has a third of the methods
    SCOPED_TRACE(method);
    Session session = engine->open(evicting_options(method, "30"));
    session.prefill(prompt);
    for (const Token token : later) session.decode(token);
    std::int64_t n_kept = 0;
    const SessionStatistics statistics = session.statistics();
    for (std::size_t l = 0; l < info.layers.size(); ++l) {
      for (const std::int32_t n : statistics.kept[l]) {
        if (info.layers[l].is_evictable()) {
          n_kept += n;
        } else {
          EXPECT_EQ(n, info.layers[l].sliding_window) << "layer " << l;
        }
      }
    }
    EXPECT_EQ(n_kept, 33 * info.n_cut_heads());
    for (const float logit : session.logits()) ASSERT_TRUE(std::isfinite(logit));
  }
}

TEST_P(ArchitectureTest, BatchesForksAndFilesGoOnBitForBit) {
  const auto engine = this->engine();
  const TemporaryDirectory directory;
  std::vector<Session> alone, forks, loaded;
  for (const bool evicts : {false, true}) {
    Session session = engine->open(evicts ? evicting_options("snapkv:window=8", "40") : full_options());
    session.prefill(tokens(70 + 30 * evicts, evicts));
    session.decode(3);
    forks.push_back(session.fork());
    session.save(directory.file("session"));
    loaded.push_back(engine->load_session(directory.file("session")));
    alone.push_back(std::move(session));
  }
  for (const Token token : tokens(20, 9)) {
    for (Session& session : alone) session.decode(token);
    for (std::vector<Session>* others : {&forks, &loaded}) {
      Session* const step[] = {&others->front(), &others->back()};
      const Token same[] = {token, token};
      engine->decode(step, same);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(max_difference((*others)[i].logits(), alone[i].logits()), 0) << "sequence " << i;
      }
    }
  }
}

// Without one of its constants a model has other logits or is refused, so the comparison with libllama covers each of
// them.
TEST_P(ArchitectureTest, ItsConstantsMatter) {
  const auto logits = [&](const TinyModelOptions& options) {
    Session session = Engine::create(tiny_model(options), {.n_threads = 2})->open(full_options());
    session.prefill(tokens(90, 4));
    return logits_of(session);
  };
  const std::vector<float> whole = logits(GetParam().options);
  const auto without = [&](const std::string& key) {
    TinyModelOptions options = GetParam().options;
    options.edit_metadata = [&, before = options.edit_metadata](gguf_context* file) {
      if (before) before(file);
      gguf_remove_key(file, (options.architecture + "." + key).c_str());
    };
    try {
      EXPECT_GT(max_difference(logits(options), whole), 1e-3) << key;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  for (const auto& [key, value] : GetParam().options.constants) without(key);
  if (GetParam().options.sliding_window > 0) without("attention.sliding_window");
  if (!GetParam().options.rope_scaling.empty() && GetParam().options.rope_scaling != "longrope") {
    without("rope.scaling.factor");
  }
}

// Returns a small variant of the model, whose file is written quickly.
TinyModelOptions smallest(TinyModelOptions o) {
  const bool is_square = o.n_embd == o.n_head * o.head_dim;
  o.n_layer = std::min(o.n_layer, 4);
  o.n_head = o.n_kv_head == o.n_head ? 2 : 4, o.n_kv_head = 2, o.head_dim = 16;
  o.n_embd = is_square ? o.n_head * o.head_dim : 24;
  for (TinyLayer& layer : o.layers) {
    const int n_kv_head = o.latent_rank > 0 ? 4 : layer.n_kv_head;
    layer = {.n_head = 4,
             .n_kv_head = n_kv_head,
             .key_dim = 16,
             .value_dim = 16,
             .n_ff = 20,
             .slides = layer.slides,
             .is_key_value = layer.is_key_value};
  }
  if (o.expert_n_ff > 0) o.expert_n_ff = 6;
  o.per_layer_embedding_dim = std::min(o.per_layer_embedding_dim, 6);
  o.n_ff = 20, o.shared_n_ff = std::min(o.shared_n_ff, 12), o.n_vocab = 40, o.has_tokenizer = false;
  o.n_drawn_rows = 1;
  return o;
}

// Returns true if the model loads and runs, or false if that throws an Error, which must have a message.
bool loads_and_runs(const std::string& path, int n_vocab) {
  try {
    const auto engine = Engine::create(Model::load(path), {.n_threads = 1, .n_batch = 32});
    const ModelInfo& info = engine->model()->info();
    const bool evicts = info.n_cut_heads() > 0;
    Session session = engine->open(evicts ? evicting_options("snapkv:window=4", "12") : full_options());
    session.prefill(random_tokens(std::min(36, info.n_ctx_train - 1), n_vocab, 1));
    session.decode(1);
    return true;
  } catch (const Error& error) {
    EXPECT_GT(std::string(error.what()).size(), 20U);
    return false;
  }
}

TEST_P(ArchitectureFileTest, DamagedMetadataIsRefusedOrRuns) {
  const TemporaryDirectory directory;
  const std::string prefix = GetParam().options.architecture + ".";
  const auto keys = [&] {
    std::vector<std::string> found;
    TinyModelOptions options = smallest(GetParam().options);
    options.edit_metadata = [&, before = options.edit_metadata](gguf_context* file) {
      if (before) before(file);
      for (std::int64_t i = 0; i < gguf_get_n_kv(file); ++i) {
        const std::string key = gguf_get_key(file, i);
        if (key.starts_with(prefix)) found.push_back(key);
      }
    };
    EXPECT_TRUE(loads_and_runs(TinyModel(options).path(), options.n_vocab));
    return found;
  }();
  const std::vector<std::function<void(gguf_context*, const char*)>> edits = {
      [](gguf_context* file, const char* key) { gguf_remove_key(file, key); },
      [](gguf_context* file, const char* key) { gguf_set_val_i32(file, key, 0); },
      [](gguf_context* file, const char* key) { gguf_set_val_i32(file, key, 1); },
      [](gguf_context* file, const char* key) { gguf_set_val_i32(file, key, 3); },
      [](gguf_context* file, const char* key) { gguf_set_val_i32(file, key, -1); },
      [](gguf_context* file, const char* key) { gguf_set_val_i32(file, key, 1 << 20); },
      [](gguf_context* file, const char* key) { gguf_set_val_i64(file, key, std::int64_t{1} << 32); },
      [](gguf_context* file, const char* key) { gguf_set_val_u64(file, key, ~std::uint64_t{0}); },
      [](gguf_context* file, const char* key) { gguf_set_val_f32(file, key, 1e30F); },
      [](gguf_context* file, const char* key) { gguf_set_val_f32(file, key, std::nanf("")); },
      [](gguf_context* file, const char* key) { gguf_set_val_str(file, key, "many"); },
      [](gguf_context* file, const char* key) { gguf_set_val_bool(file, key, true); },
      [](gguf_context* file, const char* key) {
        const std::int32_t list[] = {2, 1, 0, -1};
        gguf_set_arr_data(file, key, GGUF_TYPE_INT32, list, 4);
      },
  };
  int n_refused = 0;
  for (const std::string& key : keys) {
    for (const auto& edit : edits) {
      TinyModelOptions options = smallest(GetParam().options);
      options.edit_metadata = [&, before = options.edit_metadata](gguf_context* file) {
        if (before) before(file);
        edit(file, key.c_str());
      };
      write_tiny_model(options, directory.file("edited.gguf"));
      SCOPED_TRACE(key);
      n_refused += loads_and_runs(directory.file("edited.gguf"), options.n_vocab) ? 0 : 1;
    }
  }
  EXPECT_GT(n_refused, 60);
}

TEST_P(ArchitectureFileTest, FlippedBytesAreRefusedOrRun) {
  const TinyModelOptions options = smallest(GetParam().options);
  const std::string bytes = read_bytes(TinyModel(options).path());
  const TemporaryDirectory directory;
  constexpr std::size_t kFlips = 200;
  const std::size_t n_header = std::min<std::size_t>(bytes.size(), 5000);
  int n_refused = 0;
  for (std::size_t i = 0; i < kFlips; ++i) {
    std::string damaged = bytes;
    const std::size_t at = 4 + i * (n_header - 4) / kFlips;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (i % 8)));
    n_refused += loads_and_runs(directory.write("flipped.gguf", damaged), options.n_vocab) ? 0 : 1;
  }
  EXPECT_GT(n_refused, 50);
}

std::vector<ArchitectureVariant> plain_architectures() {
  std::vector<ArchitectureVariant> all = architecture_variants();
  std::erase_if(all, [](const ArchitectureVariant& v) { return v.name != v.options.architecture; });
  return all;
}

std::string test_name(const testing::TestParamInfo<ArchitectureVariant>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, ArchitectureTest, testing::ValuesIn(architecture_variants()), test_name);
INSTANTIATE_TEST_SUITE_P(Models, ArchitectureFileTest, testing::ValuesIn(plain_architectures()), test_name);

TEST(Architectures, EachHasItsTestAndItsRow) {
  const std::vector<ArchitectureVariant> variants = architecture_variants();
  for (const Architecture* architecture : architectures()) {
    EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [&](const ArchitectureVariant& v) {
      return v.name == architecture->name;
    })) << architecture->name;
    EXPECT_NE(read_bytes(WINNOW_DOCS "/models.md").find("| `" + std::string(architecture->name) + "` |"),
              std::string::npos)
        << architecture->name << ": run docs/refresh.py";
  }
}

// The worked example in the docs is the source that is compiled.
TEST(Architectures, TheDocumentedFileIsTheSource) {
  const std::string page = read_bytes(WINNOW_DOCS "/internals/add-an-architecture.md");
  const std::string begin = "<!-- file ";
  const std::size_t at = page.find(begin);
  ASSERT_NE(at, std::string::npos);
  const std::size_t from = at + begin.size();
  const std::string path = page.substr(from, page.find(' ', from) - from);
  const std::string source = read_bytes(WINNOW_DOCS "/../" + path);
  ASSERT_FALSE(source.empty()) << path;
  EXPECT_NE(page.find("```cpp\n" + source + "```\n"), std::string::npos) << path << ": run docs/refresh.py";
}

}  // namespace
}  // namespace winnow::test
