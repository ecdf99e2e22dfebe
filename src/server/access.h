// Access control: API keys, origins, hosts and types of bodies.
#pragma once

#include <httplib.h>

#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace winnow::server {

struct AccessOptions {
  std::vector<std::string> api_keys;  // empty: anybody may ask
  std::string host;                   // the host that the server listens on
  // Origins of other sites whose pages may ask, with commas between; empty: none, "*": all, "app://*": every one of a
  // scheme, "http://localhost:*": on every port.
  std::string allowed_origin;
  // Names besides this machine's own under which it may be reached without a key, such as "host.docker.internal" and
  // "*.local".
  std::vector<std::string> allowed_hosts;
};

// Returns whether the two are equal. Compares every byte whatever the outcome, so that the time reveals the lengths
// only.
bool equal_in_constant_time(const std::string& given, const std::string& secret);

// Returns true if a host is an address of this machine only, or "localhost". Other names are not looked up.
bool is_loopback(const std::string& host);

// Returns the error for a request that is refused before its body is read; nullopt if it may go on. Pages of other
// sites are refused by their Origin; without a key on a loopback address also by the Host under which they reached us
// (DNS rebinding). A body may not be compressed, nor have a type that is never JSON, such as a form with files. Two
// lengths or hosts are refused, since a proxy before us might believe the other one.
std::optional<ApiError> refusal(const httplib::Request& request, const AccessOptions& options);

// Returns true if a request comes from no page, or from one of this server or of an allowed site.
bool may_ask(const httplib::Request& request, const AccessOptions& options);

// Returns the headers that let pages of allowed sites read the response, and that answer a preflight. Empty if no site
// is allowed.
httplib::Headers cors_headers(const httplib::Request& request, const AccessOptions& options);

// Returns true if the body of a request is left unread, since it is refused or no POST.
bool leaves_body_unread(const httplib::Request& request, const AccessOptions& options);

bool is_sent_as_form(const httplib::Request& request);

// Throws Error(kInvalidArgument) unless all of them are names of machines, or such names after "*.".
void require_hosts(const std::vector<std::string>& hosts);

// Throws Error(kInvalidArgument) unless all of `origins` are such as browsers send, or patterns of them.
void require_origins(const std::string& origins);

}  // namespace winnow::server
