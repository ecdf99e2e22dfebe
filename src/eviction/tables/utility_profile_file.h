// The files of LU-KV's profiles, as the search for a profile reads them.
#pragma once

#include <optional>
#include <string>

#include "winnow/eviction.h"

namespace winnow {

// Returns the profile in a JSON file; nullopt if the file is no profile, or one of another version. Throws what
// UtilityProfile::load throws for a damaged file.
std::optional<UtilityProfile> load_if_profile(const std::string& path);

}  // namespace winnow
