#include "server/body_json.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::server {
namespace {

// Builds a value from the parser's events. nlohmann's own builder looks each name of an object up among all names
// before it, and copies whole objects as they grow.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t& value) override { return add(std::move(value)); }  // there is none in a text
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return add(close().values); }
  bool end_object() override { return add(object_of(close())); }

  bool key(std::string& name) override {
    std::vector<std::string>& names = open_.back().names;
    if (names.size() == kMostNamesOfObject) refuse_more_than(kMostNamesOfObject, "names in one object");
    count_part();
    names.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) override {
    if (dynamic_cast<const Json::parse_error*>(&error) != nullptr) {
      throw ApiError(400, "the body is not valid JSON: there is an error at byte " + std::to_string(byte));
    }
    throw ApiError(400, std::string("the body has JSON that this server cannot use: ") + error.what());
  }

 private:
  // An object or a list that has begun.
  struct Open {
    std::vector<std::string> names;  // of an object: [values]
    std::vector<Json> values;
  };

  static Json object_of(Open open) {
    Json::object_t object;
    object.reserve(open.names.size());
    // The map is sorted, since no choice of names makes that slow, as it can a hash table.
    std::map<std::string_view, Json*> places;
    for (std::size_t i = 0; i < open.names.size(); ++i) {
      if (const auto found = places.find(open.names[i]); found != places.end()) {
        *found->second = std::move(open.values[i]);
        continue;
      }
      auto& [name, value] = object.emplace_back(std::move(open.names[i]), std::move(open.values[i]));
      places.emplace(name, &value);
    }
    return Json(std::move(object));
  }

  bool add(Json value) {
    check_depth();
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }

  bool open() {
    check_depth();
    count_part();
    open_.emplace_back();
    return true;
  }

  Open close() {
    Open last = std::move(open_.back());
    open_.pop_back();
    return last;
  }

  void check_depth() const {
    if (open_.size() <= kMostJsonLevels) return;
    throw ApiError(400, "the body is nested deeper than " + std::to_string(kMostJsonLevels) + " levels: flatten it");
  }

  void count_part() {
    if (++n_parts_ > kMostJsonParts) refuse_more_than(kMostJsonParts, "names, objects and lists");
  }

  [[noreturn]] void refuse_more_than(std::size_t most, const std::string& what) const {
    // The excess is in the last field of the body, unless the body itself has too many names.
    const std::string field = open_.size() > 1 && !open_.front().names.empty() ? open_.front().names.back() : "";
    throw ApiError(400,
                   (field.empty() ? "the body" : "'" + field + "'") + " has more than " + std::to_string(most) + " " +
                       what + ": shorten it",
                   field);
  }

  Json root_;
  std::vector<Open> open_;  // outermost first
  std::size_t n_parts_ = 0;
};

}  // namespace

Json parse_json(const std::string& text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json parse_body(const std::string& text) {
  Json json = parse_json(text);
  if (!json.is_object()) throw ApiError(400, "the body must be a JSON object");
  return json;
}

JsonSize size_of(const Json& json) {
  JsonSize size{.n_names = json.is_object() ? json.size() : 0, .n_values = 1};
  if (!json.is_structured()) return size;
  for (const Json& value : json) {
    const JsonSize inner = size_of(value);
    size.n_names += inner.n_names;
    size.n_values += inner.n_values;
  }
  return size;
}

}  // namespace winnow::server
