// The search for the LU-KV profile of a model and a scorer.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "base/fnv1a.h"
#include "eviction/tables/utility_profile_file.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {

namespace fs = std::filesystem;

std::string UtilityProfile::model_text(std::uint64_t fingerprint) { return hex_text(fingerprint); }

std::vector<std::string> UtilityProfile::folders() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("WINNOW_PROFILES"); named != nullptr && *named != '\0') {
    folders.emplace_back(named);
  }
  std::error_code no_proc;
  const fs::path program = fs::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) {
    const fs::path bin = program.parent_path();
    folders.push_back((bin / "../share/winnow/profiles").lexically_normal().string());
    folders.push_back((bin / "../../profiles").lexically_normal().string());
  }
  folders.emplace_back("profiles");
  return folders;
}

std::shared_ptr<const UtilityProfile> UtilityProfile::find(const std::string& model, const std::string& scorer) {
  for (const std::string& folder : folders()) {
    std::vector<std::string> paths;
    std::error_code missing;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing)) {
      if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());  // takes the same one of several on every machine
    for (const std::string& path : paths) {
      std::optional<UtilityProfile> profile = load_if_profile(path);  // other tools may have files here
      if (profile && profile->model == model && profile->scorer == scorer) {
        return std::make_shared<const UtilityProfile>(*std::move(profile));
      }
    }
  }
  return nullptr;
}

void EvictionOptions::find_profile(std::uint64_t model_fingerprint) {
  if (!evicts() || !reads_profile()) return;
  load_files();
  const std::string model = UtilityProfile::model_text(model_fingerprint);
  const std::string remedy =
      "make one with `winnow calibrate -m MODEL --scorer " + scorer_text() + " -o FILE` and name it with profile=FILE";
  if (utility_profile == nullptr) utility_profile = UtilityProfile::find(model, scorer_text());
  if (utility_profile == nullptr) {
    throw Error(ErrorCode::kNotFound,
                "'" + method + "' needs a profile calibrated on the model, but there is none for this model (" + model +
                    ") and the scorer " + scorer_text() + ": " + remedy);
  }
  if (!utility_profile->model.empty() && utility_profile->model != model) {
    const std::string& profile = text_of("profile");
    throw Error(ErrorCode::kInvalidArgument,
                "the profile" + (profile.empty() ? "" : " '" + profile + "'") + " was calibrated on another model (" +
                    (utility_profile->model_name.empty() ? "" : utility_profile->model_name + ", ") +
                    utility_profile->model + ", not " + model + "): " + remedy);
  }
}

}  // namespace winnow
