// Keys of the prefix cache: a request can only hit prefixes of its own key.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "winnow/batch.h"

namespace winnow {

// Returns whether a cache that was cut may go on with this request as a later turn.
bool continues(const BatchRequest& request);

// Returns the key of a request's sequences: everything that decides what a cache keeps of given tokens, which is the
// session's options and, where they evict, how the request has its prefix cut. `checked` holds the request's options
// with their defaults filled in, as a session and its file have them.
std::string prefix_key(const BatchRequest& request, const SessionOptions& checked);

// Returns the keys that a saved sequence may have had. Conversations behind a context of Reuse::kExact are not saved,
// so theirs are not among them.
std::vector<std::string> saved_prefix_keys(const SessionOptions& options, std::span<const Token> tokens);

}  // namespace winnow
