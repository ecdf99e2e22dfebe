// golden_check [--device] DIR...: runs every golden case under the directories, prints a line per failing comparison
// and at the end "N passed, M failed, K skipped". --device: measures the scoring cases on a device that runs on this
// processor instead. Exit status: 0, 1 on any failure, 2 on wrong usage.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "golden/checks.h"

namespace {

namespace fs = std::filesystem;
using winnow::golden::Tally;

enum class Kind { kNone, kScoring, kLuKv, kCompaction, kTiny };

Kind kind_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.ends_with(".gguf")) return Kind::kNone;
  if (name.starts_with("scoring-")) return Kind::kScoring;
  if (name.starts_with("lukv")) return Kind::kLuKv;
  if (name.starts_with("compaction-") || name.starts_with("origin-")) return Kind::kCompaction;
  if (name.starts_with("tiny-") && name.ends_with(".expected.gguf")) return Kind::kTiny;
  return Kind::kNone;  // a tiny model itself
}

void check_on_device(Kind kind, [[maybe_unused]] const std::string& path, Tally& tally) {
  if (kind != Kind::kScoring) return;
#ifdef WINNOW_GOLDEN_DEVICE
  winnow::golden::check_device_scoring(path, tally);
#else
  tally.skip("scoring on a device: built without one");
#endif
}

void check(Kind kind, const std::string& path, bool on_device, Tally& tally) {
  try {
    if (on_device) return check_on_device(kind, path, tally);
    switch (kind) {
      case Kind::kScoring:
        return winnow::golden::check_scoring(path, tally);
      case Kind::kLuKv:
        return winnow::golden::check_lukv(path, tally);
      case Kind::kCompaction:
        return winnow::golden::check_compaction(path, tally);
      case Kind::kTiny:
#ifdef WINNOW_GOLDEN_ENGINE
        return winnow::golden::check_tiny(path, tally);
#else
        return tally.skip("tiny models: built without the engine");
#endif
      case Kind::kNone:
        return;
    }
  } catch (const std::exception& error) {
    tally.fail(path, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::string> directories(argv + 1, argv + argc);
  const bool on_device = std::erase(directories, "--device") > 0;
  const auto is_option = [](const std::string& text) { return text.starts_with("-"); };
  if (directories.empty() || std::any_of(directories.begin(), directories.end(), is_option)) {
    std::fprintf(stderr, "usage: golden_check [--device] DIR...\n");
    return 2;
  }
  Tally tally;
  for (const std::string& directory : directories) {
    std::error_code error;
    std::vector<fs::path> cases;
    fs::recursive_directory_iterator at(directory, error), end;
    for (; !error && at != end; at.increment(error)) {
      if (kind_of(at->path()) != Kind::kNone && at->is_regular_file()) cases.push_back(at->path());
    }
    if (error) {
      std::fprintf(stderr, "error: cannot read %s: %s\n", directory.c_str(), error.message().c_str());
      return 2;
    }
    if (cases.empty()) {
      std::fprintf(stderr, "error: no golden case under %s\n", directory.c_str());
      return 2;
    }
    std::sort(cases.begin(), cases.end());
    for (const fs::path& path : cases) check(kind_of(path), path.string(), on_device, tally);
  }
  tally.print_summary();
  return tally.has_failed() ? 1 : 0;
}
