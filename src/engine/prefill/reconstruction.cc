#include "engine/prefill/reconstruction.h"

#include <algorithm>

namespace winnow {

std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context) {
  constexpr std::size_t kPart = 2048;
  constexpr std::size_t kOverlap = 8;
  const std::vector<Token> first = model.tokenize("\n\nRepeat the previous context exactly.", false, false);
  const std::vector<Token> later =
      model.tokenize("\n\nRepeat the part of the previous context exactly, starting with", false, false);
  std::vector<std::vector<Token>> parts;
  for (std::size_t begin = 0; begin < context.size(); begin += kPart) {
    std::vector<Token>& part = parts.emplace_back(begin == 0 ? first : later);
    const std::size_t from = begin - std::min(begin, kOverlap);
    const std::size_t end = std::min(begin + kPart, context.size());
    part.insert(part.end(), context.begin() + static_cast<std::ptrdiff_t>(from),
                context.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return parts;
}

}  // namespace winnow
