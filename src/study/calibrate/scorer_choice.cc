#include "study/calibrate/scorer_choice.h"

#include <algorithm>
#include <string>

#include "eviction/options/registry.h"
#include "winnow/error.h"

namespace winnow {

EvictionOptions choose_scorer(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::string name(text.substr(0, colon));
  if (name == "full") {
    throw Error(ErrorCode::kInvalidArgument, "'full' scores nothing: name a scorer, e.g. snapkv");
  }
  for (const MethodInfo& method : eviction_methods()) {
    if (method.name == "lu-kv-" + name) name = method.name;
  }
  // A scorer without a preset of its name takes the place of another's.
  const auto& methods = eviction_methods();
  const std::vector<std::string> scorers = scorer_names();
  const bool is_scorer_alone = std::ranges::find(methods, name, &MethodInfo::name) == methods.end() &&
                               std::ranges::find(scorers, name) != scorers.end();
  if (is_scorer_alone) name = "snapkv:scorer=" + name;
  // The text names the allocators, so that options of those that they replace are refused.
  std::string full = name + (is_scorer_alone ? "," : ":") + "layers=lu-kv,heads=lu-kv";
  if (colon < text.size()) full.append(",").append(text.substr(colon + 1));
  return EvictionOptions::parse(full);
}

}  // namespace winnow
