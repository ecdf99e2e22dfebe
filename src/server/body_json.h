// JSON from outside: parsed once, with its names in their order, and bounded while it is read.
#pragma once

#include <cstddef>
#include <string>

#include "server/api_error.h"
#include "winnow/sampling.h"

namespace winnow::server {

inline constexpr std::size_t kMostJsonLevels = 64;
// Names are looked up one after the other. The most that a request is read for: of "logit_bias".
inline constexpr std::size_t kMostNamesOfObject = SamplingOptions::kMostBiases;
// Of names, objects and lists together, which take many times the memory of their text.
inline constexpr std::size_t kMostJsonParts = 500'000;

// Returns the value that `text` is. Throws ApiError(400) for what is no JSON in UTF-8 and for what is beyond these
// bounds; the error names the field of the body where it is. Of a name that comes again the last value counts, in the
// place of the first.
Json parse_json(const std::string& text);

// Returns a request's body, which has to be an object. Throws ApiError(400).
Json parse_body(const std::string& text);

struct JsonSize {
  std::size_t n_names = 0;
  std::size_t n_values = 0;  // objects and lists among them
};
JsonSize size_of(const Json& json);

}  // namespace winnow::server
