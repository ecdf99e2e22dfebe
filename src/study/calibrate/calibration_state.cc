#include "study/calibrate/calibration_state.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/fnv1a.h"
#include "base/json_file.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "winnow-calibration-state";
constexpr int kStateVersion = 1;

[[noreturn]] void refuse_state(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "'" + path +
                                               "' holds the samples of an unfinished calibration with another " + what +
                                               ": repeat the command that began it, or delete the file");
}

SampleBudgets read_sample(const std::string& path, const Json& json, std::size_t n_ratio, std::size_t n_heads) {
  SampleBudgets sample;
  sample.hash = json.at("hash").get<std::uint64_t>();
  sample.n_context = json.at("n_context").get<std::int32_t>();
  sample.budgets = json.at("budgets").get<std::vector<std::vector<std::int32_t>>>();
  bool is_right = sample.n_context > 0 && sample.budgets.size() == n_ratio;
  for (const std::vector<std::int32_t>& row : sample.budgets) {
    is_right &= row.empty() || row.size() == n_heads;
    for (const std::int32_t budget : row) is_right &= budget >= 0 && budget <= sample.n_context;
  }
  if (!is_right) refuse_file(path, "is damaged: delete it and calibrate again");
  return sample;
}

}  // namespace

void CalibrationState::take_up(const std::string& path, const std::vector<std::uint64_t>& hashes, std::size_t n_ratio,
                               std::size_t n_heads) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const Json json = read_json(path, input::kCalibration);
  if (!json.is_object() || json.value("format", Json()) != kFormat || json.value("version", Json()) != kStateVersion) {
    refuse_file(path, "is not the state of a calibration by this build: delete it");
  }
  try {
    if (json.at("model") != model) refuse_state(path, "model");
    if (json.at("scorer") != scorer) refuse_state(path, "scorer (" + json.at("scorer").get<std::string>() + ")");
    const std::string its_loss = json.value("loss", CalibrationState().loss);
    if (its_loss != loss) refuse_state(path, "loss (" + its_loss + ")");
    if (json.at("n_decode") != n_decode) refuse_state(path, "number of tokens to decode");
    if (json.at("seed") != seed) refuse_state(path, "seed");
    for (const Json& sample : json.at("samples")) {
      if (samples.size() == hashes.size()) break;
      SampleBudgets read = read_sample(path, sample, n_ratio, n_heads);
      if (read.hash != hashes[samples.size()]) refuse_state(path, "text, question or length");
      samples.push_back(std::move(read));
    }
    date = json.at("date").get<std::string>();
  } catch (const Json::exception&) {
    refuse_file(path, "is damaged: delete it and calibrate again");
  }
}

void CalibrationState::save(const std::string& path) const {
  Json rows = Json::array();
  for (const SampleBudgets& sample : samples) {
    rows.push_back({{"hash", sample.hash}, {"n_context", sample.n_context}, {"budgets", sample.budgets}});
  }
  const Json json = {{"format", kFormat},
                     {"version", kStateVersion},
                     {"model", model},
                     {"scorer", scorer},
                     {"loss", loss},
                     {"n_decode", n_decode},
                     {"seed", seed},
                     {"date", date},
                     {"samples", std::move(rows)}};
  write_file(path, json.dump() + "\n");
}

std::uint64_t hash_tokens(const std::vector<Token>& context, const std::vector<Token>& question) {
  Fnv1a hash;
  const auto add = [&](std::uint64_t value) { hash.add(&value, sizeof(value)); };
  add(context.size());
  for (const std::vector<Token>* tokens : {&context, &question}) {
    for (const Token token : *tokens) add(static_cast<std::uint64_t>(token));
  }
  return hash.value();
}

}  // namespace winnow
