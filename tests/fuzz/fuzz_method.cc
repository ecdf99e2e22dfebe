// Methods with their options (an even first byte) and budgets, as flags and requests name them. What is taken has a
// text form that says the same.
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
