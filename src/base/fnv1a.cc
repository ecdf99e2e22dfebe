#include "base/fnv1a.h"

namespace winnow {

std::string hex_text(std::uint64_t value) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4) *digit = "0123456789abcdef"[value & 15U];
  return text;
}

}  // namespace winnow
