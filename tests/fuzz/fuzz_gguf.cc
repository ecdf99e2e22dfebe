// Model files.
#include <cstdint>

#include "fuzz/memory_file.h"
#include "winnow/error.h"
#include "winnow/model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const winnow::test::MemoryFile file(data, size);
  try {
    winnow::Model::load(file.path());
  } catch (const winnow::Error&) {
  }
  return 0;
}
