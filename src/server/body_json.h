// Parses JSON from clients in one pass, keeps the order of its names, and limits its size while it is read.
#pragma once

#include <cstddef>
#include <string>

#include "server/api_error.h"
#include "winnow/sampling.h"

namespace winnow::server {

inline constexpr std::size_t kMostJsonLevels = 64;
// The most names of an object, since they are looked up one after the other. No field needs more than "logit_bias".
inline constexpr std::size_t kMostNamesOfObject = SamplingOptions::kMostBiases;
// The most names, objects and lists together, each of which takes many times the memory of its text.
inline constexpr std::size_t kMostJsonParts = 500'000;

// Parses a text and returns its value. Throws ApiError(400) if it is not JSON in UTF-8 or exceeds these limits; for too
// many names or parts, the error names the field of the body that has them. If a name comes again, the last value
// counts, in the place of the first.
Json parse_json(const std::string& text);

// Returns a request's body, which has to be an object. Throws ApiError(400).
Json parse_body(const std::string& text);

struct JsonSize {
  std::size_t n_names = 0;
  std::size_t n_values = 0;  // objects and lists among them
};
JsonSize size_of(const Json& json);

}  // namespace winnow::server
