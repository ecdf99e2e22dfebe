// LU-KV's profiles as JSON files.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "eviction/json_file.h"
#include "eviction/numbers.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

using Json = nlohmann::json;

constexpr const char* kProfileFormat = "winnow-lu-kv-profile";
constexpr int kProfileVersion = 1;
constexpr int kMaxHeads = 1 << 16;  // per model: a damaged file must not ask for absurd memory

}  // namespace

UtilityProfile UtilityProfile::load(const std::string& path) {
  const Json json = read_json(path);
  if (!json.is_object() || json.value("format", Json()) != kProfileFormat) refuse_file(path, "is not an LU-KV profile");
  if (json.value("version", Json()) != kProfileVersion) {
    refuse_file(path, "is a profile of another version: calibrate again with this build");
  }
  UtilityProfile profile;
  try {
    profile.n_layer = json.at("n_layer").get<int>();
    profile.n_kv_head = json.at("n_kv_head").get<int>();
    profile.model = json.at("model").get<std::string>();
    profile.scorer = json.at("scorer").get<std::string>();
    for (const Json& ratio : json.at("ratios")) profile.ratios.push_back(number_of(path, ratio));
    for (const Json& at_ratio : json.at("kept")) {
      if (static_cast<int>(at_ratio.size()) != profile.n_layer)
        refuse_file(path, "has a row of another number of layers");
      for (const Json& layer : at_ratio) {
        if (static_cast<int>(layer.size()) != profile.n_kv_head)
          refuse_file(path, "has a row of another number of heads");
        for (const Json& kept : layer) profile.kept.push_back(number_of(path, kept));
      }
    }
  } catch (const Json::exception&) {
    refuse_file(path, "lacks a field of a profile: calibrate again");
  }
  if (profile.n_layer < 1 || profile.n_kv_head < 1 || profile.ratios.empty() ||
      profile.kept.size() != profile.ratios.size() * static_cast<std::size_t>(profile.n_layer) *
                                 static_cast<std::size_t>(profile.n_kv_head)) {
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
