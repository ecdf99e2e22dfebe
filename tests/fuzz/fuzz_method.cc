// Methods with their options (an even first byte) and budgets, as flags and requests name them. The text form of one
// that is accepted must be stable.
#include <cstdint>
#include <string>

#include "winnow/error.h"
#include "winnow/eviction.h"

namespace {

template <class Parse>
void check(const std::string& text, Parse parse) {
  std::string said;
  try {
    said = parse(text).text();
  } catch (const winnow::Error&) {
    return;
  }
  if (parse(said).text() != said) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    check(text, winnow::EvictionOptions::parse);
  } else {
    check(text, winnow::Budget::parse);
  }
  return 0;
}
