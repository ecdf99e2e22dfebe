// The files that head allocators read: HeadKV's importances and LU-KV's profiles, both JSON.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "eviction/numbers.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

using Json = nlohmann::json;

constexpr const char* kProfileFormat = "winnow-lu-kv-profile";
constexpr int kProfileVersion = 1;
constexpr int kMaxHeads = 1 << 16;  // per model: a damaged file must not ask for absurd memory

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kBadFile, "'" + path + "' " + why);
}

Json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, "cannot open '" + path + "': check the path");
  try {
    return Json::parse(file);
  } catch (const Json::exception&) {
    refuse(path, "is not a JSON file");
  } catch (const std::ios_base::failure&) {
    throw Error(ErrorCode::kIo, "cannot read '" + path + "': is it a directory?");
  }
}

double number(const std::string& path, const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(path, "holds something that is not a number");
  return value.get<double>();
}

}  // namespace

HeadImportance HeadImportance::load(const std::string& path) {
  const Json json = read_json(path);
  if (!json.is_object() || json.empty()) refuse(path, "is not of the form {\"layer-head\": [scores], ...}");
  struct Item {
    int layer, head;
    double weight;
  };
  std::vector<Item> items;
  HeadImportance result;
  for (const auto& [key, value] : json.items()) {
    const std::size_t dash = key.find('-');
    const auto layer = parse_integer<int>(std::string_view(key).substr(0, dash));
    const auto head =
        dash == std::string::npos ? std::nullopt : parse_integer<int>(std::string_view(key).substr(dash + 1));
    if (!layer || !head || *layer < 0 || *head < 0 || *layer >= kMaxHeads || *head >= kMaxHeads) {
      refuse(path, "has the key '" + key.substr(0, 64) + "', which is not \"layer-head\"");
    }
    double sum = 0;
    std::size_t n = 1;
    if (value.is_array()) {
      if (value.empty()) refuse(path, "has no scores for head '" + key + "'");
      for (const Json& score : value) sum += number(path, score);
      n = value.size();
    } else {
      sum = number(path, value);
    }
    if (sum < 0) refuse(path, "has a negative importance for head '" + key + "'");
    items.push_back({*layer, *head, sum / static_cast<double>(n)});
    result.n_layer = std::max(result.n_layer, *layer + 1);
    result.n_head = std::max(result.n_head, *head + 1);
  }
  if (items.size() != static_cast<std::size_t>(result.n_layer) * static_cast<std::size_t>(result.n_head)) {
    refuse(path, "does not name every head of " + std::to_string(result.n_layer) + " layers x " +
                     std::to_string(result.n_head) + " heads");
  }
  double total = 0;
  result.weight.resize(items.size());
  for (const Item& item : items) {
    result.weight[static_cast<std::size_t>(item.layer) * result.n_head + item.head] = item.weight;
    total += item.weight;
  }
  if (!(total > 0) || !std::isfinite(total)) refuse(path, "has no importance above 0");
  return result;
}

UtilityProfile UtilityProfile::load(const std::string& path) {
  const Json json = read_json(path);
  if (!json.is_object() || json.value("format", Json()) != kProfileFormat) refuse(path, "is not an LU-KV profile");
  if (json.value("version", Json()) != kProfileVersion) {
    refuse(path, "is a profile of another version: calibrate again with this build");
  }
  UtilityProfile profile;
  try {
    profile.n_layer = json.at("n_layer").get<int>();
    profile.n_kv_head = json.at("n_kv_head").get<int>();
    profile.model = json.at("model").get<std::string>();
    profile.scorer = json.at("scorer").get<std::string>();
    for (const Json& ratio : json.at("ratios")) profile.ratios.push_back(number(path, ratio));
    for (const Json& at_ratio : json.at("kept")) {
      if (static_cast<int>(at_ratio.size()) != profile.n_layer) refuse(path, "has a row of another number of layers");
      for (const Json& layer : at_ratio) {
        if (static_cast<int>(layer.size()) != profile.n_kv_head) refuse(path, "has a row of another number of heads");
        for (const Json& kept : layer) profile.kept.push_back(number(path, kept));
      }
    }
  } catch (const Json::exception&) {
    refuse(path, "lacks a field of a profile: calibrate again");
  }
  if (profile.n_layer < 1 || profile.n_kv_head < 1 || profile.ratios.empty() ||
      profile.kept.size() != profile.ratios.size() * static_cast<std::size_t>(profile.n_layer) *
                                 static_cast<std::size_t>(profile.n_kv_head)) {
    refuse(path, "has a profile of the wrong shape: calibrate again");
  }
  for (std::size_t i = 0; i < profile.ratios.size(); ++i) {
    if (!(profile.ratios[i] > (i == 0 ? 0.0 : profile.ratios[i - 1])) || !(profile.ratios[i] < 1.0)) {
      refuse(path, "has ratios that do not ascend between 0 and 1");
    }
  }
  for (const double kept : profile.kept) {
    if (kept < 0 || kept > 1) refuse(path, "has a kept ratio outside 0 .. 1");
  }
  return profile;
}

void UtilityProfile::save(const std::string& path) const {
  Json rows = Json::array();
  auto next = kept.begin();
  for (std::size_t r = 0; r < ratios.size(); ++r) {
    Json by_layer = Json::array();
    for (int l = 0; l < n_layer; ++l, next += n_kv_head) {
      by_layer.push_back(std::vector<double>(next, next + n_kv_head));
    }
    rows.push_back(std::move(by_layer));
  }
  const Json json = {{"format", kProfileFormat}, {"version", kProfileVersion}, {"model", model},
                     {"scorer", scorer},         {"n_layer", n_layer},         {"n_kv_head", n_kv_head},
                     {"ratios", ratios},         {"kept", std::move(rows)}};
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file << json.dump() << '\n';
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    throw Error(ErrorCode::kIo, "cannot write '" + path + "': check the folder and the free space");
  }
}

}  // namespace winnow
