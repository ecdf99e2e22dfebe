#include "server/translation.h"

#include <utility>

namespace winnow::server {

ApiRequest parse_translated(Endpoint endpoint, const RequestBody& body, const Model& model,
                            const RequestDefaults& defaults, const std::map<std::string, std::string>& names) {
  try {
    return parse_request(endpoint, body, model, defaults);
  } catch (const ApiError& error) {
    const std::size_t end = error.param.find_first_of(".[");
    const auto found = names.find(error.param.substr(0, end));
    if (found == names.end()) throw;
    const std::string param = found->second + (end == std::string::npos ? "" : error.param.substr(end));
    std::string message = error.what();
    const std::string quoted = "'" + error.param + "'";
    if (const std::size_t place = message.find(quoted); place != std::string::npos) {
      message.replace(place, quoted.size(), "'" + param + "'");
    }
    throw ApiError(error.status, message, param, error.code);
  }
}

Json take(Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  Json value = std::move(*found);
  object.erase(found);
  return value;
}

OrderedJson arguments_json(const std::string& arguments) {
  OrderedJson json = OrderedJson::parse(arguments, nullptr, false);
  return json.is_object() ? json : OrderedJson::object();
}

std::string to_ordered_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace winnow::server
