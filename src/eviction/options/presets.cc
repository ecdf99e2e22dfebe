// The table of presets: four parts and their defaults under one name.
#include <deque>
#include <string>

#include "base/nearest_name.h"
#include "eviction/options/registry.h"
#include "winnow/error.h"
#include "winnow/eviction.h"
#include "winnow/registry.h"

namespace winnow {
namespace {

EvictionOptions parts(const char* method, const char* scorer, const char* layers, const char* heads,
                      const char* selector = "top-k") {
  EvictionOptions options;
  options.method = method;
  options.scorer = scorer;
  options.layers = layers;
  options.heads = heads;
  options.selector = selector;
  return options;
}

EvictionOptions with(EvictionOptions options, const char* name, const char* value) {
  options.set(name, value);
  return options;
}

MethodInfo preset(const EvictionOptions& options, const char* summary, const char* paper) {
  return {.name = options.method, .summary = summary, .paper = paper, .options = options};
}

// Returns parts that rank entries over the whole model, but leave no head with next to nothing.
EvictionOptions of_whole_model(const char* method, const char* scorer) {
  return with(with(parts(method, scorer, "global", "global"), "sinks", "4"), "floor", "8");
}

// Returns a preset that also stores entries in few bits and refits their values.
EvictionOptions compact(const char* method, const char* scorer) {
  EvictionOptions options = with(of_whole_model(method, scorer), "window", "8");
  options.fit = Fit::kValues;
  options.bits.rule = Bits::Rule::kByBudget;
  return options;
}

constexpr const char* kPyramid = "PyramidKV (arXiv 2406.02069)";
constexpr const char* kAda = "Ada-KV (arXiv 2407.11550)";
constexpr const char* kCritical = "CriticalKV (arXiv 2502.03805)";
constexpr const char* kHeadKv = "HeadKV (arXiv 2410.19258)";
constexpr const char* kLava = "LAVa (EMNLP 2025)";
constexpr const char* kLuKv = "LU-KV (Predicting Future Utility)";

std::deque<MethodInfo>& methods() {
  static std::deque<MethodInfo> table = {
      preset({}, "keep everything", "-"),
      preset(with(parts("streaming-llm", "streaming-llm", "uniform", "uniform"), "sinks", "4"),
             "the first tokens and the last ones", "StreamingLLM (arXiv 2309.17453)"),
      preset(parts("h2o", "h2o", "uniform", "uniform"), "tokens that all queries together attended to most",
             "H2O (arXiv 2306.14048)"),
      preset(parts("tova", "tova", "uniform", "uniform"), "tokens that the last query attends to, all heads together",
             "TOVA (arXiv 2401.06104)"),
      preset(parts("snapkv", "snapkv", "uniform", "uniform"),
             "tokens that the last window of queries attends to, pooled", "SnapKV (arXiv 2404.14469)"),
      preset(with(parts("pyramidkv", "snapkv", "pyramid", "uniform"), "window", "8"),
             "snapkv with more for the lower layers", kPyramid),
      preset(parts("vatp", "vatp", "uniform", "uniform"), "snapkv times the size of the value",
             "VATP (arXiv 2406.12335)"),
      preset(parts("knorm", "knorm", "uniform", "uniform"), "keys of small norm", "L2 norm (arXiv 2406.11430)"),
      preset(parts("keydiff", "keydiff", "uniform", "uniform"), "keys unlike the average key",
             "KeyDiff (arXiv 2504.15364)"),
      preset(with(parts("expected-attention", "expected-attention", "uniform", "uniform"), "sinks", "4"),
             "tokens that queries to come are expected to attend to", "Expected Attention (arXiv 2510.00636)"),
      preset(of_whole_model("kvzip", "kvzip"), "tokens that a pass which repeats the context attends to",
             "KVzip (arXiv 2505.23416)"),
      preset(of_whole_model("kvzip+", "kvzip+"), "the same by what they add to the residual stream",
             "KVzap (arXiv 2601.07891)"),
      preset(compact("auto", "combined"),
             "the choice for those who do not want to choose: kvzip and rms, few bits, values refitted",
             "KVzip, Attention Matching (Zweiger et al., 2026), QuaRot (arXiv 2404.00456)"),
      preset(compact("auto-fast", "rms"), "the same without a second pass over the prompt",
             "Attention Matching (Zweiger et al., 2026)"),
      preset(parts("random", "random", "uniform", "uniform"), "seeded noise: the control", "-"),
      preset(parts("ada-snapkv", "snapkv", "uniform", "ada"), "snapkv with adaptive head budgets", kAda),
      preset(parts("ada-pyramidkv", "snapkv", "pyramid", "ada"), "pyramidkv with adaptive head budgets", kAda),
      preset(parts("critical-snapkv", "snapkv", "uniform", "uniform", "critical"), "snapkv, then by projected values",
             kCritical),
      preset(parts("critical-ada-snapkv", "snapkv", "uniform", "ada", "critical"),
             "ada-snapkv, then by projected values", kCritical),
      preset(parts("critical-pyramidkv", "snapkv", "pyramid", "uniform", "critical"),
             "pyramidkv, then by projected values", kCritical),
      preset(parts("critical-headkv", "snapkv", "headkv", "headkv", "critical"), "headkv, then by projected values",
             kCritical),
      preset(parts("headkv", "snapkv", "headkv", "headkv"), "snapkv with head budgets from a file of importances",
             kHeadKv),
      preset(with(parts("duo-attention", "streaming-llm", "duo-attention", "duo-attention"), "sinks", "4"),
             "retrieval heads of a file whole, the others sinks and recency", "DuoAttention (arXiv 2410.10819)"),
      preset(with(with(parts("cake", "cake", "cake", "uniform"), "pool", "avg"), "kernel", "5"),
             "mean and variance of attention, layers by dispersion and shift", "CAKE (ICLR 2025)"),
      preset(with(parts("lava", "lava", "lava", "flat"), "group", "max"),
             "attention times the head's largest value, layers by entropy", kLava),
      preset(with(parts("lava-uniform-layers", "lava", "uniform", "flat"), "group", "max"), "lava, layers all the same",
             kLava),
      preset(with(parts("lava-uniform-heads", "lava", "lava", "uniform"), "group", "max"), "lava, heads all the same",
             kLava),
      preset(with(parts("lu-kv-snapkv", "snapkv", "lu-kv", "lu-kv"), "sinks", "4"),
             "snapkv with head budgets from a calibrated profile", kLuKv),
      preset(with(with(parts("lu-kv-keydiff", "keydiff", "lu-kv", "lu-kv"), "sinks", "4"), "window", "1"),
             "keydiff with head budgets from a calibrated profile", kLuKv),
      preset(with(with(with(parts("lu-kv-expected-attention", "expected-attention", "lu-kv", "lu-kv"), "sinks", "4"),
                       "window", "1"),
                  "ea-eps", "0.02"),
             "expected-attention with head budgets from a calibrated profile", kLuKv),
  };
  return table;
}

}  // namespace

const std::deque<MethodInfo>& eviction_methods() { return methods(); }

void register_method(const std::string& name, const std::string& text, const std::string& summary,
                     const std::string& paper) {
  check_name("method", name);
  for (const MethodInfo& method : methods()) {
    if (method.name != name) continue;
    throw Error(ErrorCode::kInvalidArgument, "a method '" + name + "' already exists: choose another name");
  }
  EvictionOptions options = EvictionOptions::parse(text);
  if (!options.evicts()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a new method must evict, but 'full' keeps everything: name another one to build on");
  }
  options.method = name;
  methods().push_back({.name = name, .summary = summary, .paper = paper, .options = std::move(options)});
}

const MethodInfo& find_method(std::string_view name) {
  std::vector<std::string_view> names;
  for (const MethodInfo& method : eviction_methods()) {
    if (method.name == name) return method;
    names.emplace_back(method.name);
  }
  throw Error(ErrorCode::kNotFound,
              "there is no eviction method '" + std::string(name.substr(0, 64)) + "': " + name_advice(name, names));
}

}  // namespace winnow
