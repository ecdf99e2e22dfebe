#include "base/bounded_json.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace winnow {
namespace {

using Reason = JsonRefusal::Reason;

// Builds a value from the parser's events.
template <typename Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return add_scalar(nullptr); }
  bool boolean(bool value) override { return add_scalar(value); }
  bool number_integer(std::int64_t value) override { return add_scalar(value); }
  bool number_unsigned(std::uint64_t value) override { return add_scalar(value); }
  bool number_float(double value, const std::string&) override { return add_scalar(value); }
  bool string(std::string& value) override { return add_scalar(std::move(value)); }
  bool binary(typename Json::binary_t& value) override { return add_scalar(std::move(value)); }  // none in a text
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return add(close().values); }
  bool end_object() override { return add(object_of(close())); }

  bool key(std::string& name) override {
    std::vector<std::string>& names = open_.back().names;
    if (names.size() == limits_.names_of_object) refuse(Reason::kNamesOfObject);
    count(n_names_, limits_.names, Reason::kNames);
    count(n_parts_, limits_.parts, Reason::kParts);
    names.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    const bool is_syntax = dynamic_cast<const nlohmann::detail::parse_error*>(&error) != nullptr;
    throw JsonRefusal{is_syntax ? Reason::kSyntax : Reason::kNumber, byte, error.what(), ""};
  }

 private:
  // An object or a list that has begun.
  struct Open {
    std::vector<std::string> names;  // of an object: [values]
    std::vector<Json> values;
  };

  static Json object_of(Open open) {
    typename Json::object_t object;
    if constexpr (std::is_same_v<Json, nlohmann::json>) {
      for (std::size_t i = 0; i < open.names.size(); ++i) {
        object.insert_or_assign(std::move(open.names[i]), std::move(open.values[i]));
      }
    } else {
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
    }
    return Json(std::move(object));
  }

  bool add_scalar(Json value) {
    count(n_scalars_, limits_.scalars, Reason::kScalars);
    return add(std::move(value));
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
    count(n_parts_, limits_.parts, Reason::kParts);
    open_.emplace_back();
    return true;
  }

  Open close() {
    Open last = std::move(open_.back());
    open_.pop_back();
    return last;
  }

  void check_depth() const {
    if (open_.size() > limits_.levels) refuse(Reason::kLevels);
  }

  void count(std::size_t& n, std::size_t most, Reason reason) {
    if (n++ == most) refuse(reason);
  }

  [[noreturn]] void refuse(Reason reason) const {
    const bool has_field = open_.size() > 1 && !open_.front().names.empty();
    throw JsonRefusal{reason, 0, "", has_field ? open_.front().names.back() : ""};
  }

  JsonLimits limits_;
  Json root_;
  std::vector<Open> open_;  // outermost first
  std::size_t n_names_ = 0, n_scalars_ = 0, n_parts_ = 0;
};

}  // namespace

template <typename Json>
Json parse_bounded_json(std::string_view text, const JsonLimits& limits) {
  Builder<Json> builder(limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

template nlohmann::json parse_bounded_json(std::string_view, const JsonLimits&);
template nlohmann::ordered_json parse_bounded_json(std::string_view, const JsonLimits&);

}  // namespace winnow
