// lukv.gguf: the mathematics of LU-KV's calibration and its budgets at run time.
#include "golden/checks.h"
#include "golden/golden_file.h"

namespace winnow::golden {

void check_lukv(const std::string& path, Tally& tally) {
  const GoldenFile file(path);
  tally.skip("LU-KV calibration");
}

}  // namespace winnow::golden
