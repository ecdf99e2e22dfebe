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
  // Other sites whose pages may ask, with commas between; empty: none, "*": all, "app://*": every one of a scheme,
  // "http://localhost:*": on every port.
  std::string allowed_origin;
  // Names beside this machine's own under which it may be reached without a key, as "host.docker.internal" and
  // "*.local".
  std::vector<std::string> allowed_hosts;
};

// Compares every byte whatever the outcome: time tells nothing but the lengths.
bool equal_in_constant_time(const std::string& given, const std::string& secret);

// Whether a host is this machine only: an address of it, or "localhost". Other names are not looked up.
bool is_loopback(const std::string& host);

// What is wrong with a request before its body is read; nothing if it may go on. Pages of other sites are refused by
// their Origin; without a key on a loopback address also by the Host that they reached us under (DNS rebinding). A body
// may not be compressed, nor be said to be something that is never JSON, as a form with files.
// Two lengths or hosts are refused: a proxy before us might believe the other one.
std::optional<ApiError> refusal(const httplib::Request& request, const AccessOptions& options);

// Whether a request comes from no page, one of this server or one of an allowed site.
bool may_ask(const httplib::Request& request, const AccessOptions& options);

// What lets pages of allowed sites read the answer, and what a preflight is answered with. Empty without such sites.
httplib::Headers cors_headers(const httplib::Request& request, const AccessOptions& options);

// Whether what the request brings besides its headers is not read: of a refused one, and of one that is no POST.
bool leaves_body_unread(const httplib::Request& request, const AccessOptions& options);

bool is_sent_as_form(const httplib::Request& request);

// Throws Error(kInvalidArgument) unless all of them are names of machines, or "*." before one.
void require_hosts(const std::vector<std::string>& hosts);

// Throws Error(kInvalidArgument) unless all of `origins` are such as browsers send, or patterns of them.
void require_origins(const std::string& origins);

}  // namespace winnow::server
