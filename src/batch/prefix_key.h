// Which kept sequences a request may begin with: those of the same key.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "winnow/batch.h"

namespace winnow {

// Whether a cache that was cut may go on with this request as a later turn.
bool continues(const BatchRequest& request);

// Everything that decides what is kept of given tokens: the session's options and, where they evict, how the request
// has its beginning cut.
// `checked`: the request's options as a session has them, with what they leave open filled in, which is what a file of
// one tells.
std::string prefix_key(const BatchRequest& request, const SessionOptions& checked);

// The keys that a saved sequence may have had: all but those of conversations behind a context of Reuse::kExact, which
// are not saved.
std::vector<std::string> saved_prefix_keys(const SessionOptions& options, std::span<const Token> tokens);

}  // namespace winnow
