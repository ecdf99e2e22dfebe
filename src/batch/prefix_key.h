// Keys of the prefix cache: a request can only hit prefixes of its own key.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "winnow/batch.h"

namespace winnow {

// Returns whether this request may continue a cache that was cut, as a later turn.
bool continues(const BatchRequest& request);

// Returns the key of a request's sequences. It contains everything that decides which entries of given tokens a cache
// keeps: the session's options and, if they evict, how the request has its prefix cut. `checked` holds the request's
// options with their defaults filled in, as a session and its file have them.
std::string prefix_key(const BatchRequest& request, const SessionOptions& checked);

// Returns the keys that a saved sequence may have had. Conversations that follow a context of Reuse::kExact are not
// saved, so their keys are not among them.
std::vector<std::string> saved_prefix_keys(const SessionOptions& options, std::span<const Token> tokens);

}  // namespace winnow
