// Saved sessions. Inputs that begin with an even byte get a fitting header and model fingerprint, so that the code
// after the checksum is fuzzed too; the others are files as they are. A session that loads goes on.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/fnv1a.h"
#include "engine/checked_file.h"
#include "fuzz/memory_file.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/session.h"

namespace {

template <class T>
void put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string with_header(std::uint64_t fingerprint, const std::string& rest) {
  std::string body;
  put(body, fingerprint);
  body += rest;
  const std::uint64_t checksum = winnow::fnv1a(body);
  std::string file = "winnowKV";
  put(file, winnow::kSessionFileVersion);
  put(file, std::uint32_t{0});
  put(file, std::uint64_t{body.size()});
  put(file, checksum);
  return file + body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<winnow::Engine> engine = winnow::Engine::create(
      winnow::Model::load(winnow::test::TinyModel({.n_layer = 1}).path()), {.n_threads = 1, .kv_bytes_limit = 1 << 24});
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const winnow::ModelInfo& model = engine->model()->info();
  if (data[0] % 2 == 0) bytes = with_header(model.fingerprint ^ model.metadata_fingerprint, bytes);
  const winnow::test::MemoryFile file(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  try {
    winnow::Session session = engine->load_session(file.path());
    for (const winnow::Token token : {1, 2}) session.decode(token);
    session.append(std::vector<winnow::Token>{3, 4, 5});
  } catch (const winnow::Error&) {
  }
  if (engine->memory().kv_bytes_in_use != 0) __builtin_trap();
  return 0;
}
