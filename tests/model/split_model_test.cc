// Models in several files: loading any part gives the same model as one file, and parts that do not belong to one model
// are refused with a message that names the file.
#include "model/split_model.h"

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "gguf/gguf_file.h"
#include "gguf/split_name.h"

namespace winnow::test {
namespace {

namespace fs = std::filesystem;

std::vector<float> last_logits(const std::shared_ptr<const Model>& model, const std::vector<Token>& tokens) {
  const auto engine = Engine::create(model, {.n_threads = 1});
  Session session = engine->open(full_options());
  session.prefill(tokens);
  const std::span<const float> logits = session.logits();
  return {logits.begin(), logits.end()};
}

class SplitModelTest : public testing::Test {
 protected:
  std::vector<std::string> parts(const SplitOptions& options = {}) const {
    return write_parts(model_.path(), directory_.file("big"), options);
  }

  static void refuse(ErrorCode code, const std::string& text, const std::string& path) {
    for (const bool use_mmap : {true, false}) {
      expect_error(code, text, [&] { Model::load(path, {.use_mmap = use_mmap}); });
    }
  }

  const TinyModel model_{{.chat_template = kChatmlTemplate}};
  const TemporaryDirectory directory_;
};

TEST(SplitNameTest, IsReadAndWritten) {
  const auto name = split_name("models/Big-1.5B-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "models/Big-1.5B");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(name->path_of(10), "models/Big-1.5B-00010-of-00010.gguf");
  for (const char* other : {"", "-00001-of-00002", "big.gguf", "big-1-of-2.gguf", "big-00001-of-2.gguf",
                            "big-0000a-of-00002.gguf", "big00001-of-00002.gguf", "big-00001-of-00002.gguf.part"}) {
    EXPECT_FALSE(split_name(other)) << other;
  }
  EXPECT_TRUE(split_name("-00001-of-00002.gguf"));
}

TEST(SplitNameTest, GivesTheModelItsName) {
  EXPECT_EQ(model_name_of("models/Big-1.5B-00002-of-00010.gguf"), "Big-1.5B");
  EXPECT_EQ(model_name_of("models/Big-1.5B.gguf"), "Big-1.5B");
  EXPECT_EQ(model_name_of("Big-00002-of-00010.gguf"), "Big");
}

TEST_F(SplitModelTest, IsTheSameFromEveryPart) {
  const auto whole = Model::load(model_.path());
  const std::vector<Token> tokens = whole->tokenize("the heat, then the hat", true, false);
  const std::vector<float> logits = last_logits(whole, tokens);
  for (const bool has_tensors_in_first : {true, false}) {
    for (const int n_parts : {2, 3, 7}) {
      for (const std::string& path : parts({.n_parts = n_parts, .has_tensors_in_first = has_tensors_in_first})) {
        for (const bool use_mmap : {true, false}) {
          const auto model = Model::load(path, {.use_mmap = use_mmap});
          EXPECT_EQ(model->info().fingerprint, whole->info().fingerprint) << path;
          EXPECT_EQ(model->info().metadata_fingerprint, whole->info().metadata_fingerprint) << path;
          EXPECT_EQ(model->info().bytes, whole->info().bytes) << path;
          EXPECT_EQ(model->info().n_parameters, whole->info().n_parameters) << path;
          EXPECT_EQ(model->info().name, "tiny") << path;
          EXPECT_TRUE(model->has_chat_template()) << path;
          EXPECT_EQ(model->tokenize("the heat, then the hat", true, false), tokens) << path;
          EXPECT_EQ(last_logits(model, tokens), logits) << path;
        }
      }
    }
  }
}

TEST_F(SplitModelTest, KnowsItsFiles) {
  const std::vector<std::string> paths = parts();
  const GgufFile file(paths[1], true);
  EXPECT_EQ(file.path(), paths[0]);
  EXPECT_EQ(file.paths(), paths);
  EXPECT_EQ(file.path_of(file.tensor(0)), paths[0]);
  EXPECT_EQ(file.path_of(file.tensor(file.n_tensors() - 1)), paths[2]);
}

TEST_F(SplitModelTest, MissingPartsAreNamed) {
  const std::vector<std::string> paths = parts();
  for (std::size_t missing = 0; missing < paths.size(); ++missing) {
    const std::string content = read_bytes(paths[missing]);
    fs::remove(paths[missing]);
    for (std::size_t given = 0; given < paths.size(); ++given) {
      if (given == missing) continue;
      refuse(ErrorCode::kNotFound,
             "1 of the 3 parts of the model '" + directory_.file("big") + "' is missing: '" + paths[missing] + "'",
             paths[given]);
    }
    directory_.write(fs::path(paths[missing]).filename(), content);
  }
  const std::vector<std::string> many = parts({.n_parts = 7});
  for (std::size_t i = 0; i < 6; ++i) fs::remove(many[i]);
  refuse(ErrorCode::kNotFound,
         "6 of the 7 parts of the model '" + directory_.file("big") + "' are missing: '" + many[0] + "', '" + many[1] +
             "', '" + many[2] + "' and 3 more",
         many[6]);
}

TEST_F(SplitModelTest, DamagedPartsAreNamed) {
  const std::vector<std::string> paths = parts();
  for (const std::string& path : paths) {
    const std::string content = read_bytes(path);
    const std::string name = fs::path(path).filename();
    // Cuts the file densely in the header and sparsely in the weights.
    for (std::size_t n = 0; n < content.size(); n += n < 400 ? 23 : content.size() / 37) {
      directory_.write(name, content.substr(0, n));
      expect_error(ErrorCode::kBadFile, "'" + path + "'", [&] { Model::load(paths[0]); });
      if (n % 5 == 0) expect_error(ErrorCode::kBadFile, "'" + path + "'", [&] { Model::load(path); });
    }
    directory_.write(name, content.substr(0, content.size() - 1));
    refuse(ErrorCode::kBadFile, "'" + path + "' is truncated", paths[1]);
    directory_.write(name, "It was the best of times, it was the worst of times.");
    refuse(ErrorCode::kBadFile, "'" + path + "' does not begin with GGUF", path == paths[2] ? paths[0] : paths[2]);
    directory_.write(name, content);
  }
  EXPECT_NO_THROW(Model::load(paths[2]));
}

TEST_F(SplitModelTest, SwappedAndRenamedPartsAreRefused) {
  const std::vector<std::string> paths = parts();
  const std::string first = read_bytes(paths[0]), second = read_bytes(paths[1]);
  directory_.write(fs::path(paths[0]).filename(), second);
  directory_.write(fs::path(paths[1]).filename(), first);
  refuse(ErrorCode::kBadFile, "'" + paths[0] + "' says inside that it is part 2 of 3", paths[0]);
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "' says inside that it is part 1 of 3", paths[1]);
  refuse(ErrorCode::kBadFile, "'" + paths[0] + "' says inside that it is part 2 of 3", paths[2]);
  refuse(ErrorCode::kBadFile, "part 2 of 3 of a model, but its name does not say so",
         directory_.write("second.gguf", second));
  refuse(ErrorCode::kBadFile, "NAME-00002-of-00003.gguf", directory_.file("second.gguf"));
  // The name has another number of parts than the file.
  directory_.write("big-00002-of-00004.gguf", second);
  refuse(ErrorCode::kBadFile, "part 2 of 3", directory_.file("big-00002-of-00004.gguf"));
  refuse(ErrorCode::kBadFile, "part 2 of 3", directory_.write("big-00000-of-00000.gguf", second));
}

TEST_F(SplitModelTest, PartsOfAnotherModelAreRefused) {
  const std::vector<std::string> paths = parts();
  const std::string second = fs::path(paths[1]).filename();
  const auto replace = [&](const TinyModelOptions& options, const SplitOptions& split = {}) {
    const TinyModel other(options);
    const TemporaryDirectory folder;
    directory_.write(second, read_bytes(write_parts(other.path(), folder.file("other"), split)[1]));
  };
  // The other models have more layers, the same tensors in other parts, other widths, and another architecture's name.
  replace({.n_layer = 4});
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "' and '" + paths[0] + "' are parts of different models: the first says",
         paths[0]);
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "'", paths[1]);
  replace({}, {.has_tensors_in_first = false});
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "' and '" + paths[0] + "' both have the tensor 'token_embd.weight'",
         paths[0]);
  replace({.n_ff = 128});
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "': tensor 'blk.", paths[2]);
  replace({}, {.edit = [](int, gguf_context* part) { gguf_set_val_str(part, "general.architecture", "qwen2"); }});
  refuse(ErrorCode::kBadFile, "general.architecture is 'qwen2' in the first and 'llama' in the second", paths[2]);
  directory_.write(second, read_bytes(model_.path()));
  refuse(ErrorCode::kBadFile, "'" + paths[1] + "' is a whole model, not part 2 of 3", paths[0]);
  EXPECT_NO_THROW(Model::load(paths[1]));  // whatever its name is
}

TEST_F(SplitModelTest, TensorsAreCounted) {
  for (const int difference : {-1, 1}) {
    const std::vector<std::string> paths = parts({.edit = [&](int, gguf_context* part) {
      const std::int32_t n = gguf_get_val_i32(part, gguf_find_key(part, "split.tensors.count"));
      gguf_set_val_i32(part, "split.tensors.count", n + difference);
    }});
    refuse(ErrorCode::kBadFile, "tensors together, but their headers say ", paths[1]);
  }
}

TEST_F(SplitModelTest, DamagedSplitKeysAreRefused) {
  // libllama would abort on a number of a different type.
  const std::pair<const char*, std::function<void(gguf_context*)>> edits[] = {
      {"not of type u16", [](gguf_context* part) { gguf_set_val_u32(part, "split.no", 1); }},
      {"not of type u16", [](gguf_context* part) { gguf_set_val_str(part, "split.no", "one"); }},
      {"not of type u16", [](gguf_context* part) { gguf_set_val_u32(part, "split.count", 3); }},
      {"not of type i32", [](gguf_context* part) { gguf_set_val_u64(part, "split.tensors.count", 1); }},
      {"lacks the metadata key 'split.no'", [](gguf_context* part) { gguf_remove_key(part, "split.no"); }},
      {"lacks the metadata key 'split.tensors.count'",
       [](gguf_context* part) { gguf_remove_key(part, "split.tensors.count"); }},
      {"says inside", [](gguf_context* part) { gguf_set_val_u16(part, "split.no", 65535); }},
      {"says inside", [](gguf_context* part) { gguf_set_val_u16(part, "split.count", 65535); }},
      {"is a whole model", [](gguf_context* part) { gguf_remove_key(part, "split.count"); }},
  };
  for (const auto& [text, edit] : edits) {
    for (const int edited : {0, 1, 2}) {
      const std::vector<std::string> paths = parts({.edit = [&](int no, gguf_context* part) {
        if (no == edited) edit(part);
      }});
      const std::string& other = paths[static_cast<std::size_t>(edited == 2 ? 0 : 2)];
      refuse(ErrorCode::kBadFile, text, other);
      refuse(ErrorCode::kBadFile, "'" + paths[static_cast<std::size_t>(edited)] + "'", other);
    }
  }
}

TEST_F(SplitModelTest, MergedAndSingleFilesAreWholeModels) {
  const auto logits = last_logits(Model::load(model_.path()), {1, 2, 3});
  const auto write = [&](std::uint16_t count, const std::string& name) {
    const TinyModel file({.edit_metadata = [=](gguf_context* metadata) {
      gguf_set_val_u16(metadata, "split.no", 0);
      gguf_set_val_u16(metadata, "split.count", count);
      gguf_set_val_i32(metadata, "split.tensors.count", 7);  // the number before tensors were added
    }});
    return directory_.write(name, read_bytes(file.path()));
  };
  EXPECT_EQ(last_logits(Model::load(write(0, "merged.gguf")), {1, 2, 3}), logits);
  EXPECT_EQ(last_logits(Model::load(write(1, "one-00001-of-00001.gguf")), {1, 2, 3}), logits);
}

}  // namespace
}  // namespace winnow::test
