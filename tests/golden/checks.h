// The checks by kind of golden file.
#pragma once

#include <string>

#include "golden/tally.h"

namespace winnow::golden {

// Each throws for a damaged file, which counts as a failure.
void check_scoring(const std::string& path, Tally& tally);
void check_lukv(const std::string& path, Tally& tally);
void check_compaction(const std::string& path, Tally& tally);

// tiny-<arch>.expected.gguf through the real engine; only with WINNOW_GOLDEN_ENGINE (tiny_check.cc).
void check_tiny(const std::string& expected_path, Tally& tally);

}  // namespace winnow::golden
