// LU-KV's profiles as JSON files.
#include "eviction/tables/utility_profile_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/atomic_file.h"
#include "base/fnv1a.h"
#include "base/json_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "winnow-lu-kv-profile";
constexpr int kVersion = 1;

// Returns the checksum of the fields that decide budgets, which detects a changed digit.
std::string checksum(const Json& json) {
  Fnv1a hash;
  for (const char* field : {"model", "scorer", "ratios", "kept"}) hash.add(json.at(field).dump());
  return hex_text(hash.value());
}

// Returns the KV heads of each layer. n_kv_head is one number if all layers have the same, else a list; 0: a layer that
// is not cut.
std::vector<int> read_heads(const std::string& path, const Json& json) {
  constexpr int kMaxLayers = 1 << 16;  // so that a damaged file cannot take absurd memory
  const int n_layer = json.at("n_layer").get<int>();
  if (n_layer < 1 || n_layer > kMaxLayers) refuse_file(path, "has a profile of the wrong shape: calibrate again");
  const Json& n_kv_head = json.at("n_kv_head");
  if (!n_kv_head.is_array()) return std::vector<int>(static_cast<std::size_t>(n_layer), n_kv_head.get<int>());
  if (std::ssize(n_kv_head) != n_layer) refuse_file(path, "has a profile of the wrong shape: calibrate again");
  return n_kv_head.get<std::vector<int>>();
}

void read_table(const std::string& path, const Json& json, UtilityProfile& profile) {
  for (const Json& ratio : json.at("ratios")) profile.ratios.push_back(number_of(path, ratio));
  for (const Json& at_ratio : json.at("kept")) {
    if (at_ratio.size() != profile.heads.size()) {
      refuse_file(path, "has a row with the wrong number of layers: calibrate again");
    }
    auto n_kv_head = profile.heads.begin();
    for (const Json& layer : at_ratio) {
      if (std::ssize(layer) != *n_kv_head++) {
        refuse_file(path, "has a row with the wrong number of heads: calibrate again");
      }
      for (const Json& kept : layer) profile.kept.push_back(number_of(path, kept));
    }
  }
}

void check_table(const std::string& path, const UtilityProfile& profile) {
  const auto n_heads = std::accumulate(profile.heads.begin(), profile.heads.end(), std::int64_t{0});
  if (n_heads < 1 || *std::min_element(profile.heads.begin(), profile.heads.end()) < 0 || profile.ratios.empty() ||
      profile.kept.size() != profile.ratios.size() * static_cast<std::size_t>(n_heads)) {
    refuse_file(path, "has a profile of the wrong shape: calibrate again");
  }
  for (std::size_t i = 0; i < profile.ratios.size(); ++i) {
    if (!(profile.ratios[i] > (i == 0 ? 0.0 : profile.ratios[i - 1])) || !(profile.ratios[i] < 1.0)) {
      refuse_file(path, "has ratios that do not ascend between 0 and 1");
    }
  }
  for (const double kept : profile.kept) {
    if (kept < 0 || kept > 1) refuse_file(path, "has a kept ratio outside 0 .. 1");
  }
}

bool is_profile(const Json& json) { return json.is_object() && json.value("format", Json()) == kFormat; }
bool is_of_this_version(const Json& json) { return json.value("version", Json()) == kVersion; }

UtilityProfile profile_of(const std::string& path, const Json& json) {
  UtilityProfile profile;
  try {
    profile.heads = read_heads(path, json);
    profile.model = json.at("model").get<std::string>();
    profile.scorer = json.at("scorer").get<std::string>();
    profile.model_name = json.value("model_name", "");
    profile.n_samples = json.value("n_samples", 0);
    profile.n_tokens = json.value("n_tokens", 0);
    profile.n_decode = json.value("n_decode", 0);
    profile.seed = json.value("seed", std::uint64_t{0});
    profile.date = json.value("date", "");
    profile.tool = json.value("tool", "");
    read_table(path, json, profile);
    if (json.contains("checksum") && json.at("checksum") != checksum(json)) {
      refuse_file(path, "is damaged (its checksum does not match): calibrate again, or fetch it again");
    }
  } catch (const Json::exception&) {
    refuse_file(path, "lacks a field of a profile, or has one of the wrong type: calibrate again");
  }
  check_table(path, profile);
  return profile;
}

}  // namespace

UtilityProfile UtilityProfile::load(const std::string& path) {
  const Json json = read_json(path, input::kProfile);
  if (!is_profile(json)) refuse_file(path, "is not an LU-KV profile");
  if (!is_of_this_version(json)) {
    refuse_file(path, "is a profile of another version: calibrate again with this build");
  }
  return profile_of(path, json);
}

std::optional<UtilityProfile> load_if_profile(const std::string& path) {
  const Json json = read_json(path, input::kProfile);
  if (!is_profile(json) || !is_of_this_version(json)) return std::nullopt;
  return profile_of(path, json);
}

void UtilityProfile::save(const std::string& path) const {
  Json rows = Json::array();
  auto next = kept.begin();
  for (std::size_t r = 0; r < ratios.size(); ++r) {
    Json by_layer = Json::array();
    for (const int n : heads) {
      by_layer.push_back(std::vector<double>(next, next + n));
      next += n;
    }
    rows.push_back(std::move(by_layer));
  }
  const bool is_even = std::equal(heads.begin() + 1, heads.end(), heads.begin());
  const Json n_kv_head = is_even ? Json(heads.front()) : Json(heads);
  Json json = {{"format", kFormat},      {"version", kVersion},    {"model", model},         {"model_name", model_name},
               {"scorer", scorer},       {"n_samples", n_samples}, {"n_tokens", n_tokens},   {"n_decode", n_decode},
               {"seed", seed},           {"date", date},           {"tool", tool},           {"n_layer", heads.size()},
               {"n_kv_head", n_kv_head}, {"ratios", ratios},       {"kept", std::move(rows)}};
  json["checksum"] = checksum(json);
  // Each field and each ratio gets a line, so that two profiles can be compared with diff.
  std::string text = "{";
  for (const auto& [name, value] : json.items()) {
    text += (text.size() > 1 ? ",\n" : "\n") + Json(name).dump() + ": ";
    if (name != "kept") {
      text += value.dump();
      continue;
    }
    std::string separator = "[\n";
    for (const Json& row : value) {
      text += separator + row.dump();
      separator = ",\n";
    }
    text += "]";
  }
  text += "\n}\n";
  write_file(path, text);
}

}  // namespace winnow
