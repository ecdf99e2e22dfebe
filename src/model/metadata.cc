#include "model/metadata.h"

#include <cstdio>
#include <utility>

namespace winnow {
namespace {

// Returns a number in six digits, with an exponent if it is small or large.
std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

bool Metadata::has(const std::string& key) const { return file_.has(prefix_ + key); }

void Metadata::refuse(ErrorCode code, const std::string& sentence) const {
  throw Error(code, "'" + file_.path() + "': " + sentence);
}

// Returns a constant in its range. Beyond it ggml would abort, or compute only NaN.
float Metadata::checked(const std::string& key, double value, double min, double max) const {
  if (value >= min && value <= max) return static_cast<float>(value);
  file_.refuse_value(prefix_ + key, "is " + digits(value) + ", expected " + digits(min) + " to " + digits(max));
}

float Metadata::number(const std::string& key, double min, double max) const {
  const std::optional<double> value = file_.find_number(prefix_ + key);
  if (!value) refuse(ErrorCode::kBadFile, "there is no metadata key '" + prefix_ + key + "'");
  return checked(key, *value, min, max);
}

float Metadata::number_or(const std::string& key, double otherwise, double min, double max) const {
  return checked(key, file_.find_number(prefix_ + key).value_or(otherwise), min, max);
}

int Metadata::integer(const std::string& key, int min, int max) const {
  return static_cast<int>(file_.integer(prefix_ + key, min, max));
}

int Metadata::integer_or(const std::string& key, int otherwise, int min, int max) const {
  return has(key) ? integer(key, min, max) : otherwise;
}

bool Metadata::truth_or(const std::string& key, bool otherwise) const {
  return file_.find_truth(prefix_ + key).value_or(otherwise);
}

std::string Metadata::text_or(const std::string& key, const std::string& otherwise) const {
  return file_.find_string(prefix_ + key).value_or(otherwise);
}

std::optional<std::vector<std::int64_t>> Metadata::find_integers(const std::string& key) const {
  return file_.find_integers(prefix_ + key);
}

std::vector<int> Metadata::of_layers(const std::string& key, int n_layer, int min, int max,
                                     std::optional<std::vector<int>> otherwise) const {
  const std::optional<std::vector<std::int64_t>> found = find_integers(key);
  if (!found) {
    if (otherwise) return *std::move(otherwise);
    refuse(ErrorCode::kBadFile, "there is no metadata key '" + prefix_ + key + "'");
  }
  const auto n = static_cast<std::size_t>(n_layer);
  if (found->size() != 1 && found->size() != n) {
    refuse(ErrorCode::kBadFile, prefix_ + key + " has " + std::to_string(found->size()) +
                                    " numbers, but the model has " + std::to_string(n_layer) + " layers");
  }
  std::vector<int> values;
  for (std::size_t l = 0; l < n; ++l) {
    const std::int64_t value = (*found)[found->size() == 1 ? 0 : l];
    if (value < min || value > max) {
      file_.refuse_value(prefix_ + key, "is " + std::to_string(value) + ", expected " + std::to_string(min) + " to " +
                                            std::to_string(max));
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

}  // namespace winnow
