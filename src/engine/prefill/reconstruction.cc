#include "engine/prefill/reconstruction.h"

#include <algorithm>

#include "engine/prefill/late_repeat.h"
#include "model/model_impl.h"

namespace winnow {
namespace {

// Tokens that are repeated together: the later of them attend to those before.
constexpr std::int32_t kPart = 2048;
// The same for a late repeat. What a row finds among the rows before it, it does not look up in the prompt, and its
// hidden state knows the tokens before it anyway: with 2,048, more needles are lost. All rows of a part see what lies
// near any of them, so a short part sees less; batches shorter still make slower products (docs/methods.md).
constexpr std::int32_t kLatePart = 256;
constexpr std::int32_t kNear = 128;  // tokens on either side of a part

std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context) {
  constexpr std::size_t kOverlap = 8;
  const std::vector<Token> first = model.tokenize("\n\nRepeat the previous context exactly.", false, false);
  const std::vector<Token> later =
      model.tokenize("\n\nRepeat the part of the previous context exactly, starting with", false, false);
  std::vector<std::vector<Token>> parts;
  for (std::size_t begin = 0; begin < context.size(); begin += std::size_t{kPart}) {
    std::vector<Token>& part = parts.emplace_back(begin == 0 ? first : later);
    const std::size_t from = begin - std::min(begin, kOverlap);
    const std::size_t end = std::min(begin + std::size_t{kPart}, context.size());
    part.insert(part.end(), context.begin() + static_cast<std::ptrdiff_t>(from),
                context.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return parts;
}

LateRepeat late_repeat(int n_layer) {
  // Why a sixth of the layers: docs/methods.md. Models of few layers leave out the first, so that small ones in tests
  // do what large ones do.
  return {.first_layer = std::min(std::max(n_layer / 6, 1), n_layer - 1), .n_part = kLatePart, .n_near = kNear};
}

}  // namespace

PromptRepeats prompt_repeats(const Model& model, const EvidenceNeeds& needs, std::span<const Token> prompt) {
  PromptRepeats repeats;
  if (needs.reconstruction_pass) repeats.parts = reconstruction_parts(model, prompt);
  if (needs.late_repeat) repeats.late = late_repeat(model.impl().spec.n_layer());
  return repeats;
}

std::int32_t PromptRepeats::n_rows(std::int32_t n_tokens) const {
  std::size_t n = late ? static_cast<std::size_t>(n_tokens) : 0;
  for (const std::vector<Token>& part : parts) n += part.size();
  return static_cast<std::int32_t>(n);
}

// The rows of a late repeat need room for a part's own, and for copies of those that it sees, where these are not all.
std::int32_t PromptRepeats::n_entries_behind(std::int32_t n_tokens) const {
  std::int32_t most = 0;
  if (late) {
    const std::int32_t n_seen = most_entries_seen(*late, n_tokens);
    most = std::min(late->n_part, n_tokens) + (n_seen < n_tokens ? n_seen : 0);
  }
  for (const std::vector<Token>& part : parts) most = std::max(most, static_cast<std::int32_t>(part.size()));
  return most;
}

}  // namespace winnow
