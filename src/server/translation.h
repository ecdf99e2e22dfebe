// What dialects that are translated to the fields of OpenAI's chats have in common.
#pragma once

#include <map>
#include <string>

#include "server/api_request.h"

namespace winnow::server {

// parse_request, whose errors name the client's fields: `names` gives them by ours ("stop" -> "stop_sequences").
ApiRequest parse_translated(Endpoint endpoint, const RequestBody& body, const Model& model,
                            const RequestDefaults& defaults, const std::map<std::string, std::string>& names);

// Takes a field out of an object; null where it is not there.
Json take(Json& object, const std::string& name);

// A call's arguments as an object; {} for what the end of the tokens cut off.
OrderedJson arguments_json(const std::string& arguments);

// With the names in their order; what is not UTF-8 becomes U+FFFD.
std::string to_ordered_text(const OrderedJson& json);

}  // namespace winnow::server
