// Calibrated profiles and tables of heads.
#include <cstdint>

#include "fuzz/memory_file.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const winnow::test::MemoryFile file(data, size);
  try {
    winnow::UtilityProfile::load(file.path());
  } catch (const winnow::Error&) {
  }
  try {
    winnow::HeadImportance::load(file.path());
  } catch (const winnow::Error&) {
  }
  return 0;
}
