// fuzz_seeds FOLDER writes seeds that are generated instead of stored: a model file into FOLDER/gguf and saved sessions
// into FOLDER/session.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "model/tiny_model.h"
#include "winnow/session.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 2) return 2;
  const fs::path folder = argv[1];
  fs::create_directories(folder / "gguf");
  fs::create_directories(folder / "session");
  // This is the smallest complete model.
  const winnow::test::TinyModel tiny(
      {.n_layer = 1, .n_head = 1, .n_kv_head = 1, .head_dim = 16, .n_embd = 8, .n_ff = 8, .n_vocab = 260});
  std::ofstream((folder / "gguf" / "tiny").string(), std::ios::binary) << '\1' << winnow::test::read_bytes(tiny.path());

  const auto model = winnow::Model::load(winnow::test::TinyModel({.n_layer = 1}).path());
  constexpr std::pair<const char*, const char*> kMethods[] = {
      {"full", ""}, {"snapkv:window=4", "50%"}, {"h2o:window=4", "6"}, {"auto", "20%bytes"}, {"auto:bits=own", "30%"}};
  for (const auto& [method, budget] : kMethods) {
    winnow::SessionOptions options;
    options.eviction = winnow::EvictionOptions::parse(method);
    if (options.eviction.evicts()) options.budget = winnow::Budget::parse(budget);
    const auto engine = winnow::Engine::create(model, {.n_threads = 1});
    winnow::Session session = engine->open(options);
    session.prefill(winnow::test::random_tokens(options.eviction.method == "auto" ? 96 : 12, 300, 1));
    const std::string path = (folder / "session" / method).string();
    session.save(path);
    // The fuzz target adds the header and the fingerprint itself.
    const std::string bytes = winnow::test::read_bytes(path);
    std::ofstream(path, std::ios::binary) << '\0' << bytes.substr(40);
  }
  return 0;
}
