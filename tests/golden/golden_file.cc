#include "golden/golden_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "kernels/simd/half.h"

namespace winnow::golden {
namespace {

// The types of GGUF's values and of ggml's tensors, by their numbers in files.
enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};
enum TensorType : std::uint32_t { kF32 = 0, kF16 = 1, kI32 = 26 };

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

std::uint64_t bytes_of_number(std::uint32_t tensor_type) {
  switch (tensor_type) {
    case kF32:
    case kI32:
      return 4;
    case kF16:
      return 2;
    default:
      return 0;  // refused when the tensor is read
  }
}

}  // namespace

// A reader of numbers and texts in the order of the file.
class GoldenFile::Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) refuse("not a readable GGUF file: it ends in its header");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class Number>
  Number number() {
    Number number;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }

  Value value(std::uint32_t type) {
    switch (type) {
      case kUint8:
      case kBool:
        return std::int64_t{number<std::uint8_t>()};
      case kInt8:
        return std::int64_t{number<std::int8_t>()};
      case kUint16:
        return std::int64_t{number<std::uint16_t>()};
      case kInt16:
        return std::int64_t{number<std::int16_t>()};
      case kUint32:
        return std::int64_t{number<std::uint32_t>()};
      case kInt32:
        return std::int64_t{number<std::int32_t>()};
      case kUint64:
      case kInt64:
        return number<std::int64_t>();
      case kFloat32:
        return double{number<float>()};
      case kFloat64:
        return number<double>();
      case kString:
        return text();
      case kArray:
        return array();
      default:
        refuse("not a readable GGUF file: a value of type " + std::to_string(type));
    }
  }
  std::uint64_t at() const { return at_; }

 private:
  Value array() {
    const auto type = number<std::uint32_t>();
    const auto n = number<std::uint64_t>();
    if (type == kArray) refuse("a list of lists");
    if (type == kString) return list<std::string>(type, n);
    if (type == kFloat32 || type == kFloat64) return list<double>(type, n);
    return list<std::int64_t>(type, n);
  }
  template <class Item>
  std::vector<Item> list(std::uint32_t type, std::uint64_t n) {
    std::vector<Item> items;
    for (std::uint64_t i = 0; i < n; ++i) items.push_back(std::get<Item>(value(type)));
    return items;
  }

  std::string_view bytes_;
  std::uint64_t at_ = 0;
};

GoldenFile::GoldenFile(const std::string& path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  bytes_.assign(std::istreambuf_iterator<char>(file), {});
  Reader reader(bytes_);
  if (reader.take(4) != "GGUF") refuse("not a GGUF file");
  if (reader.number<std::uint32_t>() != 3) refuse("not GGUF of version 3");
  const auto n_tensors = reader.number<std::uint64_t>(), n_keys = reader.number<std::uint64_t>();
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    std::string name = reader.text();
    keys_[std::move(name)] = reader.value(reader.number<std::uint32_t>());
  }
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    TensorPlace& place = tensors_[reader.text()];
    std::uint64_t n = 1;
    for (auto left = reader.number<std::uint32_t>(); left > 0; --left) {
      place.ne.push_back(reader.number<std::int64_t>());
      n *= static_cast<std::uint64_t>(place.ne.back());
    }
    while (place.ne.size() > 1 && place.ne.back() == 1) place.ne.pop_back();
    place.type = reader.number<std::uint32_t>();
    place.begin = reader.number<std::uint64_t>();
    place.n_bytes = n * bytes_of_number(place.type);
  }
  const auto alignment = static_cast<std::uint64_t>(has_key("general.alignment") ? integer("general.alignment") : 32);
  if (alignment == 0) refuse("data aligned to 0 bytes");
  const std::uint64_t data = (reader.at() + alignment - 1) / alignment * alignment;
  for (auto& [name, place] : tensors_) {
    place.begin += data;
    if (place.begin > bytes_.size() || place.n_bytes > bytes_.size() - place.begin) {
      refuse("truncated: tensor " + name + " ends behind the file");
    }
  }
}

template <class Wanted>
const Wanted& GoldenFile::value(const std::string& key, const char* kind) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) refuse("no metadata key " + key);
  const auto* wanted = std::get_if<Wanted>(&found->second);
  if (wanted == nullptr) refuse("metadata key " + key + " is not " + kind);
  return *wanted;
}

std::string GoldenFile::text(const std::string& key) const { return value<std::string>(key, "a text"); }

std::vector<std::string> GoldenFile::texts(const std::string& key) const {
  return value<std::vector<std::string>>(key, "a list of texts");
}

std::int64_t GoldenFile::integer(const std::string& key) const { return value<std::int64_t>(key, "an integer"); }

double GoldenFile::number(const std::string& key) const {
  const auto found = keys_.find(key);
  const bool is_integer = found != keys_.end() && std::holds_alternative<std::int64_t>(found->second);
  return is_integer ? static_cast<double>(integer(key)) : value<double>(key, "a number");
}

std::vector<std::int64_t> GoldenFile::integers(const std::string& key) const {
  if (!has_key(key)) return {};
  return value<std::vector<std::int64_t>>(key, "a list of integers");
}

int GoldenFile::size(const std::string& name, int least) const {
  const std::int64_t size = integer("winnow." + name);
  if (size < least || size > 1 << 20) refuse("absurd " + name);
  return static_cast<int>(size);
}

bool GoldenFile::has_prefix(const std::string& prefix) const {
  const auto at = tensors_.lower_bound(prefix);
  return at != tensors_.end() && at->first.starts_with(prefix);
}

const GoldenFile::TensorPlace& GoldenFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("no tensor " + name);
  return found->second;
}

std::string_view GoldenFile::bytes(const TensorPlace& place) const {
  return std::string_view(bytes_).substr(place.begin, place.n_bytes);
}

Tensor<float> GoldenFile::floats(const std::string& name) const {
  const TensorPlace& place = tensor(name);
  const std::string_view from = bytes(place);
  Tensor<float> result{.ne = place.ne, .data = {}};
  if (place.type == kF32) {
    result.data.resize(from.size() / sizeof(float));
    std::memcpy(result.data.data(), from.data(), from.size());
  } else if (place.type == kF16) {
    std::vector<std::uint16_t> halves(from.size() / sizeof(std::uint16_t));
    std::memcpy(halves.data(), from.data(), from.size());
    result.data.resize(halves.size());
    std::transform(halves.begin(), halves.end(), result.data.begin(), kernels::float_from_half);
  } else {
    refuse("tensor " + name + " is neither F32 nor F16");
  }
  return result;
}

std::vector<float> GoldenFile::sized_floats(const std::string& name, std::int64_t n) const {
  std::vector<float> data = floats(name).data;
  if (std::ssize(data) != n) refuse("tensor " + name + " has the wrong size");
  return data;
}

Tensor<std::int32_t> GoldenFile::int32s(const std::string& name) const {
  const TensorPlace& place = tensor(name);
  if (place.type != kI32) refuse("tensor " + name + " is not I32");
  const std::string_view from = bytes(place);
  Tensor<std::int32_t> result{.ne = place.ne, .data = std::vector<std::int32_t>(from.size() / sizeof(std::int32_t))};
  std::memcpy(result.data.data(), from.data(), from.size());
  return result;
}

std::vector<double> GoldenFile::doubles(const std::string& name) const {
  const Tensor<float> values = floats(name);
  return {values.data.begin(), values.data.end()};
}

std::vector<double> flatten(const std::vector<std::vector<double>>& rows) {
  std::vector<double> flat;
  for (const std::vector<double>& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

}  // namespace winnow::golden
