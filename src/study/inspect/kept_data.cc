#include "study/inspect/kept_data.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "engine/count_raised.h"

namespace winnow {
std::string cut_name(const CutOutcome& cut) { return cut.method + ", " + cut.budget; }

std::string kept_data(const Analysis& analysis) {
  const std::size_t row_bytes = (analysis.context.size() + 7) / 8;
  nlohmann::json cuts = nlohmann::json::array();
  for (std::size_t c = 0; c < analysis.cuts.size(); ++c) {
    std::vector<std::uint8_t> bits;
    for (const auto& layer : analysis.positions[c]) {
      for (const std::vector<std::int32_t>& head : layer) {
        const std::size_t row = bits.size();
        bits.resize(row + row_bytes);
        for (const std::int32_t p : head) {
          std::uint8_t& byte = bits[row + static_cast<std::size_t>(p) / 8];
          byte = static_cast<std::uint8_t>(byte | 1U << (p % 8));
        }
      }
    }
    const CutOutcome& cut = analysis.cuts[c];
    cuts.push_back({{"name", cut_name(cut)},
                    {"method", cut.method},
                    {"budget", cut.budget},
                    {"raised", count_raised(cut.raised)},
                    {"bits", base64(bits)}});
  }
  std::vector<std::size_t> heads;
  for (const auto& layer : analysis.positions.front()) heads.push_back(layer.size());
  const nlohmann::json json = {{"heads", heads}, {"tokens", analysis.context_text}, {"cuts", std::move(cuts)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace winnow
