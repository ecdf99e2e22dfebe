// One check for each kind of golden file.
#pragma once

#include <string>

#include "golden/tally.h"

namespace winnow::golden {

// Each check throws for a damaged file, which counts as a failure.
void check_scoring(const std::string& path, Tally& tally);
void check_lukv(const std::string& path, Tally& tally);
void check_compaction(const std::string& path, Tally& tally);

// Measures scoring-*.gguf on a device that runs on this processor. Only with WINNOW_GOLDEN_DEVICE
// (device_scoring_check.cc).
void check_device_scoring(const std::string& path, Tally& tally);

// Checks tiny-<arch>.expected.gguf with the real engine. Only with WINNOW_GOLDEN_ENGINE (tiny_check.cc).
void check_tiny(const std::string& expected_path, Tally& tally);

}  // namespace winnow::golden
