#include "gguf/gguf_file.h"

#include <ggml.h>
#include <gguf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/fnv1a.h"
#include "gguf/gguf_part.h"
#include "gguf/split_name.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Parts = std::vector<std::unique_ptr<GgufPart>>;

std::string part_text(int number, int count) {
  return "part " + std::to_string(number) + " of " + std::to_string(count);
}

// Returns the name of a part. Throws Error(kBadFile) if it is not the one that the part's header calls for.
SplitName checked_name(const GgufPart& part, const GgufPart::Split& split) {
  const std::optional<SplitName> name = split_name(part.path());
  const std::string meant = part_text(split.no + 1, split.count);
  if (!name) {
    throw Error(ErrorCode::kBadFile, "'" + part.path() + "' is " + meant +
                                         " of a model, but its name does not say so, and parts are found by name: "
                                         "rename all of them, this one to NAME" +
                                         SplitName{.stem = "", .count = split.count}.path_of(split.no + 1));
  }
  if (name->number != split.no + 1 || name->count != split.count) {
    throw Error(ErrorCode::kBadFile, "'" + part.path() + "' says inside that it is " + meant +
                                         ": the file was renamed or swapped with another; download the model again");
  }
  return *name;
}

// Throws Error(kNotFound) with the names of the parts that do not exist.
void require_parts(const SplitName& name) {
  constexpr int kNamed = 3;
  std::string missing;
  int n_missing = 0;
  for (int number = 1; number <= name.count; ++number) {
    struct stat ignored {};
    const std::string path = name.path_of(number);
    if (stat(path.c_str(), &ignored) == 0) continue;
    if (++n_missing <= kNamed) missing += (missing.empty() ? "'" : ", '") + path + "'";
  }
  if (n_missing == 0) return;
  if (n_missing > kNamed) missing += " and " + std::to_string(n_missing - kNamed) + " more";
  throw Error(ErrorCode::kNotFound, std::to_string(n_missing) + " of the " + std::to_string(name.count) +
                                        " parts of the model '" + name.stem + "' " + (n_missing == 1 ? "is" : "are") +
                                        " missing: " + missing + "; put all parts into one folder");
}

// Throws Error(kBadFile) unless the part belongs to the model with the first part `first`, whose split the file `given`
// states as `of_model`. Parts after the first seldom have the model's metadata.
void check_part(const GgufPart& part, int no, const GgufPart& first, const std::string& given,
                const GgufPart::Split& of_model) {
  const std::optional<GgufPart::Split> split = part.split();
  if (!split) {
    throw Error(ErrorCode::kBadFile, "'" + part.path() + "' is a whole model, not " +
                                         part_text(no + 1, of_model.count) + " as its name says; download it again");
  }
  checked_name(part, *split);
  const auto refuse = [&](const std::string& other, const std::string& difference) {
    throw Error(ErrorCode::kBadFile, "'" + part.path() + "' and '" + other + "' are parts of different models: " +
                                         difference + "; download all parts of one of the two");
  };
  if (split->n_tensors != of_model.n_tensors) {
    refuse(given, "the first says that its model has " + std::to_string(split->n_tensors) +
                      " tensors, the second says " + std::to_string(of_model.n_tensors));
  }
  for (const char* key : {"general.architecture", "general.name"}) {
    const auto value = [&](const GgufPart& of) -> std::string {
      const std::int64_t id = gguf_find_key(of.header(), key);
      return id < 0 || gguf_get_kv_type(of.header(), id) != GGUF_TYPE_STRING ? "" : gguf_get_val_str(of.header(), id);
    };
    if (!value(part).empty() && value(part) != value(first)) {
      refuse(first.path(),
             std::string(key) + " is '" + value(part) + "' in the first and '" + value(first) + "' in the second");
    }
  }
}

bool can_change(std::string_view key, const std::string& architecture, const MetadataValue& value) {
  if (key.starts_with("general.")) return false;  // of all architectures; ggml aborts on another type of alignment
  if (key.starts_with(architecture + ".") && key.size() > architecture.size() + 1) return true;
  // The vocabulary and the way its words are split belong together, and to the file.
  constexpr std::string_view kTokenizer = "tokenizer.ggml.";
  if (!key.starts_with(kTokenizer)) return false;
  key.remove_prefix(kTokenizer.size());
  return (key.starts_with("add_") && std::holds_alternative<bool>(value)) ||
         (key.ends_with("_token_id") && std::holds_alternative<std::int64_t>(value));
}

// Applies the changes to the header, adds them to the hash and returns their keys. Throws Error(kInvalidArgument) for a
// key that cannot be changed.
std::unordered_set<std::string> change_metadata(gguf_context* header, std::span<const MetadataChange> changes,
                                                const std::string& architecture, Fnv1a& hash) {
  std::unordered_set<std::string> changed;
  for (const auto& [given, value] : changes) {
    const std::string key = given.starts_with('.') ? architecture + given : given;
    if (!can_change(key, architecture, value)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the model's metadata '" + key + "' cannot be changed this way: change keys of '" + architecture +
                      ".', or of 'tokenizer.ggml.' truth values named add_... and numbers named ..._token_id");
    }
    changed.insert(key);
    hash.add(key);
    std::visit(
        [&](const auto& it) {
          using Value = std::decay_t<decltype(it)>;
          if constexpr (std::is_same_v<Value, bool>) {
            gguf_set_val_bool(header, key.c_str(), it);
          } else if constexpr (std::is_same_v<Value, std::int64_t>) {
            gguf_set_val_i64(header, key.c_str(), it);
          } else if constexpr (std::is_same_v<Value, double>) {
            gguf_set_val_f64(header, key.c_str(), it);
          } else {
            gguf_set_val_str(header, key.c_str(), it.c_str());
          }
          if constexpr (std::is_same_v<Value, std::string>) {
            hash.add(it);
          } else {
            hash.add(&it, sizeof(it));
          }
        },
        value);
  }
  return changed;
}

std::size_t bytes_of(gguf_type number) {
  switch (number) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 4;
  }
}

// Returns the hash of the architecture's and the tokenizer's keys with their values, in whatever order the file has
// them.
std::uint64_t hash_of_metadata(const gguf_context* header, const std::string& architecture) {
  std::uint64_t sum = 0;
  for (std::int64_t id = 0; id < gguf_get_n_kv(header); ++id) {
    const std::string_view key = gguf_get_key(header, id);
    if (!key.starts_with(architecture + ".") && !key.starts_with("tokenizer.")) continue;
    const bool is_list = gguf_get_kv_type(header, id) == GGUF_TYPE_ARRAY;
    const gguf_type type = is_list ? gguf_get_arr_type(header, id) : gguf_get_kv_type(header, id);
    const std::size_t n = is_list ? gguf_get_arr_n(header, id) : 1;
    Fnv1a hash;
    hash.add(key).add(&type, sizeof(type)).add(&n, sizeof(n));
    if (type == GGUF_TYPE_STRING) {
      for (std::size_t i = 0; i < n; ++i) {
        const std::string_view text = is_list ? gguf_get_arr_str(header, id, i) : gguf_get_val_str(header, id);
        const std::size_t n_bytes = text.size();
        hash.add(&n_bytes, sizeof(n_bytes)).add(text);
      }
    } else if (n > 0) {
      hash.add(is_list ? gguf_get_arr_data(header, id) : gguf_get_val_data(header, id), n * bytes_of(type));
    }
    sum += hash.value();
  }
  return sum;
}

// Returns the file, or all parts of the model that it belongs to, with their headers checked.
Parts open_parts(const std::string& path) {
  Parts parts;
  auto given = std::make_unique<GgufPart>(path);
  const std::optional<GgufPart::Split> split = given->split();
  if (!split) {
    parts.push_back(std::move(given));
    return parts;
  }
  const SplitName name = checked_name(*given, *split);
  require_parts(name);
  for (int no = 0; no < split->count; ++no) {
    parts.push_back(no == split->no ? std::move(given) : std::make_unique<GgufPart>(name.path_of(no + 1)));
    check_part(*parts.back(), no, *parts.front(), path, *split);
  }
  return parts;
}

}  // namespace

struct GgufFile::Impl {
  struct Place {
    ggml_tensor* tensor;
    const GgufPart* part;
  };

  const gguf_context* metadata() const { return parts.front()->header(); }

  Parts parts;
  std::vector<ggml_tensor*> tensors;
  std::unordered_map<std::string_view, Place> by_name;
  std::unordered_set<std::string> changed_keys;  // whose values are the caller's, not the file's
  std::uint64_t tensor_bytes = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t metadata_fingerprint = 0;
  bool is_mapped = false;
};

GgufFile::GgufFile(const std::string& path, bool use_mmap, std::span<const MetadataChange> changes)
    : path_(path), impl_(std::make_unique<Impl>()) {
  impl_->parts = open_parts(path);
  path_ = impl_->parts.front()->path();
  for (const auto& part : impl_->parts) {
    for (ggml_tensor* tensor : part->tensors()) {
      const auto [place, is_new] = impl_->by_name.try_emplace(ggml_get_name(tensor), Impl::Place{tensor, part.get()});
      if (!is_new) {
        throw Error(ErrorCode::kBadFile, "'" + part->path() + "' and '" + place->second.part->path() +
                                             "' both have the tensor '" + ggml_get_name(tensor) +
                                             "': they are parts of two models; download all parts of one of them");
      }
      impl_->tensors.push_back(tensor);
    }
  }
  if (const auto split = impl_->parts.front()->split(); split && split->n_tensors != n_tensors()) {
    throw Error(ErrorCode::kBadFile, "the parts of '" + path_ + "' have " + std::to_string(n_tensors()) +
                                         " tensors together, but their headers say " +
                                         std::to_string(split->n_tensors) +
                                         ": they are not parts of one model; download all of them again");
  }

  Fnv1a hash;
  const std::string architecture = find_string("general.architecture").value_or("");
  hash.add(architecture);
  impl_->changed_keys = change_metadata(impl_->parts.front()->header(), changes, architecture, hash);
  impl_->metadata_fingerprint = hash_of_metadata(impl_->parts.front()->header(), architecture);
  impl_->is_mapped = use_mmap;
  for (const auto& part : impl_->parts) part->load(use_mmap);
  for (const ggml_tensor* tensor : impl_->tensors) {
    const std::size_t bytes = ggml_nbytes(tensor);
    const auto* address = static_cast<const std::byte*>(tensor->data);
    impl_->tensor_bytes += bytes;
    hash.add(ggml_get_name(tensor));
    hash.add(&tensor->type, sizeof(tensor->type));
    hash.add(tensor->ne, sizeof(tensor->ne));
    hash.add(address, std::min<std::size_t>(bytes, 64));
    hash.add(address + bytes / 2, std::min<std::size_t>(bytes - bytes / 2, 64));
  }
  impl_->fingerprint = hash.value();
}

GgufFile::~GgufFile() = default;

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const auto& part : impl_->parts) paths.push_back(part->path());
  return paths;
}

void GgufFile::refuse_value(const std::string& key, const std::string& fault) const {
  if (impl_->changed_keys.contains(key)) {
    throw Error(ErrorCode::kInvalidArgument, "the metadata given for " + key + " " + fault);
  }
  throw Error(ErrorCode::kBadFile, "'" + path_ + "': the metadata key " + key + " " + fault);
}

std::optional<std::string> GgufFile::find_string(const std::string& key) const {
  const std::int64_t id = gguf_find_key(impl_->metadata(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(impl_->metadata(), id) != GGUF_TYPE_STRING) {
    refuse_value(key, "is not a string");
  }
  return gguf_get_val_str(impl_->metadata(), id);
}

namespace {

// Returns element `index` of the integers or truth values at `data`, or nullopt for another type.
std::optional<std::int64_t> integer_at(gguf_type type, const void* data, std::size_t index) {
  const auto at = [&](auto zero) { return static_cast<std::int64_t>(static_cast<const decltype(zero)*>(data)[index]); };
  switch (type) {
    case GGUF_TYPE_UINT8:
      return at(std::uint8_t{});
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:  // a byte
      return at(std::int8_t{});
    case GGUF_TYPE_UINT16:
      return at(std::uint16_t{});
    case GGUF_TYPE_INT16:
      return at(std::int16_t{});
    case GGUF_TYPE_UINT32:
      return at(std::uint32_t{});
    case GGUF_TYPE_INT32:
      return at(std::int32_t{});
    case GGUF_TYPE_UINT64:
      return at(std::uint64_t{});
    case GGUF_TYPE_INT64:
      return at(std::int64_t{});
    default:
      return std::nullopt;
  }
}

// Returns a key's value if it is one integer.
std::optional<std::int64_t> integer_of(const gguf_context* gguf, std::int64_t id) {
  const gguf_type type = gguf_get_kv_type(gguf, id);
  if (type == GGUF_TYPE_ARRAY || type == GGUF_TYPE_STRING || type == GGUF_TYPE_BOOL) return std::nullopt;
  return integer_at(type, gguf_get_val_data(gguf, id), 0);
}

}  // namespace

std::optional<std::int64_t> GgufFile::find_integer(const std::string& key) const {
  const gguf_context* gguf = impl_->metadata();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  if (const auto value = integer_of(gguf, id)) return value;
  refuse_value(key, "is not an integer");
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(const std::string& key) const {
  const gguf_context* gguf = impl_->metadata();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) return std::vector<std::int64_t>{*find_integer(key)};
  const gguf_type type = gguf_get_arr_type(gguf, id);
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; type != GGUF_TYPE_STRING && i < gguf_get_arr_n(gguf, id); ++i) {
    const auto value = integer_at(type, gguf_get_arr_data(gguf, id), i);
    if (!value) break;
    values.push_back(*value);
  }
  if (values.empty()) refuse_value(key, "is not a list of integers");
  return values;
}

std::optional<double> GgufFile::find_number(const std::string& key) const {
  const gguf_context* gguf = impl_->metadata();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf, id) == GGUF_TYPE_FLOAT32) return static_cast<double>(gguf_get_val_f32(gguf, id));
  if (gguf_get_kv_type(gguf, id) == GGUF_TYPE_FLOAT64) return gguf_get_val_f64(gguf, id);
  if (const auto value = integer_of(gguf, id)) return static_cast<double>(*value);
  refuse_value(key, "is not a number");
}

std::optional<bool> GgufFile::find_truth(const std::string& key) const {
  const std::int64_t id = gguf_find_key(impl_->metadata(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(impl_->metadata(), id) != GGUF_TYPE_BOOL) refuse_value(key, "is not a truth value");
  return *static_cast<const std::int8_t*>(gguf_get_val_data(impl_->metadata(), id)) != 0;
}

bool GgufFile::has(const std::string& key) const { return gguf_find_key(impl_->metadata(), key.c_str()) >= 0; }

std::string GgufFile::string(const std::string& key) const {
  auto value = find_string(key);
  if (!value) throw Error(ErrorCode::kBadFile, "'" + path_ + "' has no metadata key '" + key + "'");
  return *value;
}

std::int64_t GgufFile::integer(const std::string& key, std::int64_t min, std::int64_t max) const {
  const auto value = find_integer(key);
  if (!value) throw Error(ErrorCode::kBadFile, "'" + path_ + "' has no metadata key '" + key + "'");
  if (*value < min || *value > max) {
    refuse_value(key,
                 "is " + std::to_string(*value) + ", expected " + std::to_string(min) + " to " + std::to_string(max));
  }
  return *value;
}

std::vector<std::pair<std::string, std::string>> GgufFile::texts() const {
  const gguf_context* gguf = impl_->metadata();
  std::vector<std::pair<std::string, std::string>> texts;
  for (std::int64_t id = 0; id < gguf_get_n_kv(gguf); ++id) {
    const std::string key = gguf_get_key(gguf, id);
    switch (gguf_get_kv_type(gguf, id)) {
      case GGUF_TYPE_ARRAY:
        break;
      case GGUF_TYPE_STRING:
        texts.emplace_back(key, gguf_get_val_str(gguf, id));
        break;
      case GGUF_TYPE_BOOL:
        texts.emplace_back(key, *find_truth(key) ? "true" : "false");
        break;
      case GGUF_TYPE_FLOAT32:
      case GGUF_TYPE_FLOAT64:
        texts.emplace_back(key, std::to_string(*find_number(key)));
        break;
      default:
        texts.emplace_back(key, std::to_string(*find_integer(key)));
    }
  }
  return texts;
}

ggml_tensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : found->second.tensor;
}

const std::string& GgufFile::path_of(const ggml_tensor* tensor) const {
  return impl_->by_name.at(ggml_get_name(tensor)).part->path();
}

std::int64_t GgufFile::n_tensors() const { return static_cast<std::int64_t>(impl_->tensors.size()); }

ggml_tensor* GgufFile::tensor(std::int64_t index) const { return impl_->tensors[static_cast<std::size_t>(index)]; }

std::uint64_t GgufFile::tensor_bytes() const { return impl_->tensor_bytes; }
std::uint64_t GgufFile::fingerprint() const { return impl_->fingerprint; }
std::uint64_t GgufFile::metadata_fingerprint() const { return impl_->metadata_fingerprint; }

void GgufFile::release(const void* data, std::size_t bytes) const {
  if (!impl_->is_mapped) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace winnow
