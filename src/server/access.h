// Who may ask: keys, origins, and what kind of body.
#pragma once

#include <httplib.h>

#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace winnow::server {

struct AccessOptions {
  std::vector<std::string> api_keys;  // empty: anybody may ask
  std::string host;                   // that the server listens on
  std::string allowed_origin;         // another site whose pages may ask; empty: none, "*": all
};

// Compares every byte whatever the outcome: time tells nothing but the lengths.
bool equal_in_constant_time(const std::string& given, const std::string& secret);

// Whether a host is this machine only: an address of it, or "localhost". Other names are not looked up.
bool is_loopback(const std::string& host);

// What is wrong with a request before its body is read; nothing if it may go on. Pages of other sites are refused by
// their Origin; without a key on a loopback address also by the Host that they reached us under (DNS rebinding). A body
// has to be JSON by its Content-Type, which a page of another site cannot send unasked, and not compressed.
// Two lengths or hosts are refused: a proxy before us might believe the other one.
std::optional<ApiError> refusal(const httplib::Request& request, const AccessOptions& options);

}  // namespace winnow::server
